"""Enumerates all small graphs over an alphabet of operators and finds those of equal value."""
