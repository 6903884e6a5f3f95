"""Searching for schedules that are faster than the analytic model's choice."""
