"""Models on NVIDIA GPUs."""
