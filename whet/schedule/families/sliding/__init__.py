"""The sketch of windows over vectors, read where they lie."""
