"""The sketch of reductions over outer axes."""
