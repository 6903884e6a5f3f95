"""The superoptimizer: rewrites that are found by enumeration, proved, and kept as data."""
