"""CUDA C++ from loop programs, compiled by NVRTC."""
