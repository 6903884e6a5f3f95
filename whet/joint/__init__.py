"""The search over graphs, priced by the kernels that whet would make of them."""
