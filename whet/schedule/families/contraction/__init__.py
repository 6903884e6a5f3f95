"""The sketches of contractions: one operand in panels, or both turned."""
