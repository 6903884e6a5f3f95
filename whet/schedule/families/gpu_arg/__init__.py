"""Positions of largest and smallest elements on GPUs."""
