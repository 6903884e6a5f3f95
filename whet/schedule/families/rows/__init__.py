"""The sketch of chains of stages along contiguous rows."""
