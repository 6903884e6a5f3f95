"""Attention over any number of keys on GPUs: rows with a running maximum."""
