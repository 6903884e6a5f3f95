"""The sketch of one stage on a GPU: every thread computes a small tile of outputs."""
