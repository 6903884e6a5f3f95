"""Sums of products on GPUs: tiles of blocks, rings of shared memory, sums split over clusters."""
