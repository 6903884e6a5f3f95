"""From loop programs to machine code."""
