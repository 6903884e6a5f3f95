"""Other tensor expressions of a task: what to compute instead."""
