"""Loop programs: primitives, traces, and the pieces that sketches build them of."""
