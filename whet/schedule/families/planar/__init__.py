"""The sketch of windows along contiguous rows, read where they lie."""
