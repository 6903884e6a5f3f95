"""Sketches as search spaces: the protocol, the registry, populations, loop nests as arrays."""
