"""What was measured, kept: an SQLite store of targets, workloads, records and learned models."""
