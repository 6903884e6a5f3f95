"""The parts that a compiled model needs to be stored and called: arrays, signatures, artifacts.

Nothing here needs more than NumPy (and `ml_dtypes` for the element types that it lacks).
"""
