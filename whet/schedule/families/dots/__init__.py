"""The sketch of inner products."""
