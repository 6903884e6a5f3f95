"""The prime field in which the generator computes.

Values are residues modulo a prime just below 2**28: products of two stay below 2**56, so that
more than a hundred can be added up in 64 bits before a reduction is due.  Division is exact
(by the inverse), so an average is an average and not a sum.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from whet.core.types import Array

PRIME = (1 << 28) - 57
DRAWS = 2
"""Independent random assignments of the inputs that are computed side by side."""
TERMS_PER_REDUCTION = 128
"""How many products are added up before the sum is reduced."""

_CLOSE = 1e-9


def residue(value: float) -> int:
    """The number as a residue; floats that stand for simple fractions become those fractions."""
    fraction = Fraction(value).limit_denominator(1 << 12)
    if abs(float(fraction) - value) > _CLOSE * max(1.0, abs(value)):
        raise ValueError(f"{value!r} is no simple fraction")
    return fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME


def inverse(values: Array) -> Array:
    """The inverse of every residue; ZeroDivisionError if there is a zero."""
    distinct, positions = np.unique(values, return_inverse=True)
    if (distinct == 0).any():
        raise ZeroDivisionError("zero has no inverse")
    found = np.array([pow(int(v), -1, PRIME) for v in distinct], np.int64)
    return found[positions].reshape(values.shape)


def uniform(rng: np.random.Generator, count: int) -> Array:
    """Independent residues for every draw: [DRAWS, count]."""
    return rng.integers(0, PRIME, (DRAWS, count), dtype=np.uint32)


def small_signed(rng: np.random.Generator, count: int) -> Array:
    """Small numbers with signs: in the first draw mostly positive, in the second mostly not.

    The signs of sums and products of these are known as long as they stay below PRIME / 2.
    """
    size = rng.integers(1, 5, (DRAWS, count))
    share = np.linspace(0.3, 0.7, DRAWS)[:, None]
    negative = rng.random((DRAWS, count)) < share
    return np.where(negative, PRIME - size, size).astype(np.uint32)
