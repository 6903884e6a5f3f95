"""Finding fingerprints that occur twice without sorting them."""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.core.types import Array
from whet.superopt.generate.compiled import U, compiled

BITS_PER_ENTRY = 16


@compiled
def _add(prints: Any, shift: Any, seen: Any, twice: Any) -> None:
    for h in prints:
        at = h >> shift
        word = at >> U(6)
        bit = U(1) << (at & U(63))
        if seen[word] & bit:
            twice[word] |= bit
        else:
            seen[word] |= bit


@compiled
def _test(prints: Any, shift: Any, twice: Any, out: Any) -> None:
    for n in range(len(prints)):
        at = prints[n] >> shift
        out[n] = twice[at >> U(6)] >> (at & U(63)) & U(1)


class Marks:
    """Two bits for every place that the leading bits of a fingerprint name.

    Whatever occurs twice is marked; about one in sixteen of the others is marked too.
    """

    def __init__(self, entries: int) -> None:
        bits = max(6, (entries * BITS_PER_ENTRY - 1).bit_length())
        self.shift = U(64 - bits)
        self.seen = np.zeros(1 << (bits - 6), np.uint64)
        self.marked = np.zeros(1 << (bits - 6), np.uint64)

    def add(self, prints: Array) -> None:
        _add(prints, self.shift, self.seen, self.marked)

    def twice(self, prints: Array) -> Array:
        """For each fingerprint, whether it may have been added twice."""
        found = np.empty(len(prints), np.bool_)
        _test(prints, self.shift, self.marked, found)
        return found
