"""The sketch of windows over a copy with a border."""
