"""Trying kernels out: built, checked and timed in processes that may crash or hang."""
