"""The experiments of bench/paper.py, a module each."""
