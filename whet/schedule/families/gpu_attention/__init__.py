"""Products with stages along their rows between them on GPUs, in one kernel: attention."""
