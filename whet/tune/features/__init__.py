"""Numbers that describe candidates, for whole populations at once: what learned models see."""
