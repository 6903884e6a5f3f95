"""Schedules: how a task is computed, as sketches with holes."""
