"""Numbers that prices reckon with: each stands once, with its unit and where it comes from.

What differs between machines is no number here but a constant of the target, which calibration
measures (`whet.core.constants`); these hold for all, as far as anybody knows.  A price that is
wrong because of one costs speed, never a result.  `bench/price_numbers.py` shows how far prices of
measured kernels are off with each of them larger and smaller.
"""
