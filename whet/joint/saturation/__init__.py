"""Equality saturation as an engine of the search: e-graphs of blocks, extracted by prices."""
