"""The table from which workers of the thread pool take the processors that they stay on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whet.core.types import Array

_WORD_BITS = 64


def places_table(processors: Sequence[int]) -> Array:
    """Words of 64 bits: the number of places, the bytes of a mask, then a mask for each place.

    A mask has one bit set, that of its processor, as the system call wants it:

        (0, 2)   ->   2, 8, 0b001, 0b100
    """
    words = max(processors) // _WORD_BITS + 1
    masks = np.zeros((len(processors), words), np.uint64)
    for place, processor in enumerate(processors):
        masks[place, processor // _WORD_BITS] = 1 << processor % _WORD_BITS
    return np.concatenate([np.array([len(processors), 8 * words], np.uint64), masks.ravel()])
