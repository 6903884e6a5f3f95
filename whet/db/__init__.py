"""The store of measurements: an SQLite store of targets, workloads, records and learned models."""
