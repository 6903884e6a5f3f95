"""Tasks: the units that kernels are generated for."""
