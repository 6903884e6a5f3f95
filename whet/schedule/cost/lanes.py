"""Lanes of register tiles, how long their sums run, and what they prefetch."""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.dtypes import DType
from whet.core.types import Array
from whet.schedule.program.register_tile import LINE_BYTES

LONGEST_SUM = 128
"""Terms of a running sum, at most: a question of precision, not of speed.

The error of a sum of random terms grows like the square root of what it runs over.  From here on
adding it to the total costs nothing that can be measured, and sums of thousands of terms are as
precise as those of libraries that cut them for the sake of their caches.
"""


def longest_sum(depth: int, dtype: DType) -> int:
    """Terms of a running sum: all of them where addition is exact or there are few."""
    return LONGEST_SUM if dtype.is_float and depth > LONGEST_SUM else 0


def sum_blocks(depth: int, holes: dict[str, Array]) -> Array:
    """Times that a running sum is added to the total."""
    terms = holes["terms"]
    return np.where(terms > 0, np.ceil(depth / np.maximum(terms, 1)), 0)


def lanes_for(columns: int, bits: int, target: CpuTarget) -> int:
    """Lanes of a vector that suits a row of this length."""
    full = max(1, target.vector_bits // bits)
    while full > columns and full > 1:
        full //= 2
    return full


def prefetches_per_step(prefetch: Array, tiles: Array, row_bytes: Array) -> Array:
    """Lines that a tile asks for in a step of its innermost loop (`register_tile.next_panel`)."""
    lines = np.ceil(row_bytes / LINE_BYTES)
    return prefetch * np.where(tiles < lines, lines, 1)
