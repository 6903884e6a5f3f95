"""Shapes that are deliberately odd: ones, primes, a little more than a vector, nothing at all."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tools.graph_fuzz.draw import Draw
from whet.core.types import Shape

EXTENTS: Mapping[int, float] = {
    1: 14, 2: 8, 3: 12, 4: 6, 5: 10, 6: 2, 7: 8, 8: 5, 9: 2, 11: 4, 13: 3, 16: 6, 17: 9, 31: 1,
    32: 2, 33: 6, 64: 1, 65: 4, 129: 1,
}  # fmt: skip
"""Extents of an axis, and how often they are drawn."""

RANKS: Mapping[int, float] = {0: 3, 1: 10, 2: 25, 3: 20, 4: 30, 5: 6}
MOST_ELEMENTS = 5000
EMPTY = 0.15
"""How often an axis has no elements, in graphs that may have such."""


def draw_extent(draw: Draw, most: int = 1 << 30) -> int:
    fitting = {e: w for e, w in EXTENTS.items() if e <= most}
    return draw.weighted(fitting) if fitting else 1


def draw_rank(draw: Draw, low: int = 0, high: int = 5) -> int:
    return draw.weighted({r: w for r, w in RANKS.items() if low <= r <= high})


def draw_shape(
    draw: Draw, rank: int, *, empty: bool = False, most: int = MOST_ELEMENTS, extent: int = 1 << 30
) -> Shape:
    """A shape of so many axes with at most that many elements, no axis longer than `extent`."""
    shape = [1] * rank
    for axis in draw.shuffled(range(rank)):
        shape[axis] = draw_extent(draw, min(extent, most // max(math.prod(shape), 1)))
    if empty and rank and draw.chance(EMPTY):
        shape[draw.integer(0, rank - 1)] = 0
    return tuple(shape)
