"""Scans: what of a body can be computed for all steps at once, before the scan or after it."""
