"""Equality saturation: all graphs that rewrites lead to, at once, and the cheapest among them."""
