"""What the benchmarks share: processes that take turns, statistics, tables."""
