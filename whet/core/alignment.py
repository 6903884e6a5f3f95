"""The start of arrays: at a multiple of a cache line, which is also the widest vector."""

from __future__ import annotations

import numpy as np

from whet.core.types import Array

ALIGNMENT = 64


def round_up(nbytes: int) -> int:
    """`nbytes`, or the next larger multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def aligned(memory: Array, nbytes: int) -> Array:
    """The first `nbytes` of these bytes that start at an aligned address."""
    start = -memory.ctypes.data % ALIGNMENT
    assert start + nbytes <= memory.size, "room for the alignment is missing"
    return memory[start : start + nbytes]


def aligned_zeros(nbytes: int) -> Array:
    """Zeroed bytes that start at an aligned address."""
    return aligned(np.zeros(nbytes + ALIGNMENT, np.uint8), nbytes)
