"""Lengths up to which products of a Winograd schedule are summed without losing precision.

The rounding error of a running sum of t random terms, and then of n / t such sums, is about

    sqrt((t + n / t) / 2)

units of the last place of the result.  Transforms magnify it, along one axis after the other, and
round a few times themselves.  A direct sum over the same window has n times all taps terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from whet.schedule.algorithms.transforms import matrices
from whet.schedule.cost.lanes import LONGEST_SUM

DIRECT_SUM = 384
"""Terms after which libraries cut the running sums of a direct convolution."""
TRANSFORM_ROUNDINGS = 8
"""What the transforms round themselves, in terms of a running sum."""
LENGTHS = {LONGEST_SUM: 1.0, 64: 1.5, 32: 1.7, 16: 2.0}
"""Lengths of running sums, and up to how many times the error of a direct sum each is used: to cut
them at 64 costs next to nothing, at 16 a few percent."""
SHORT_SUM, ERROR_OF_SHORT_SUMS = 64, 2.2
"""Sums of few terms stay in registers when they are not cut, so a little more is allowed."""


def longest_sum(m: int, taps: Sequence[int], depth: int) -> int | None:
    """Terms of a running sum of products, at most, for tiles of m outputs.

    0 stands for all terms; None when no length is precise enough.
    """
    magnified = math.prod(matrices(m, r).magnification ** 2 for r in taps)
    direct = _variance(depth * math.prod(taps), DIRECT_SUM)
    whole = [(depth, ERROR_OF_SHORT_SUMS)] if depth <= SHORT_SUM else []
    for most, allowed in [*whole, *LENGTHS.items()]:
        if magnified * (_variance(depth, most) + TRANSFORM_ROUNDINGS) <= allowed**2 * direct:
            return most if depth > most else 0
    return None


def _variance(depth: int, most: int) -> float:
    """Twice the square of the error of so many terms in running sums of a length."""
    running = min(depth, most)
    return running + depth / running
