"""Measuring kernels of machine code, in processes that load and run it."""
