"""Sketches derived from a task by rules (Ansor, section 4), beside the hand-made families."""
