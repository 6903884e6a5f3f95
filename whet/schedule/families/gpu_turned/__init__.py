"""Values that are read along another axis than they are written along, on GPUs."""
