"""The sketches of reductions in parts, each of which another sketch makes."""
