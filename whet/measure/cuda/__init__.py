"""Measuring kernels on NVIDIA GPUs."""
