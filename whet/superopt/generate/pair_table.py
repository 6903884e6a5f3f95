"""The table of pairs of values: an open-addressing table from two values to their number."""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.core.types import Array
from whet.superopt.generate.compiled import U, compiled, inlined, mix

UNARY = -1
"""The second member of a pair that is one operand alone."""


@inlined
def pair_key(a: Any, b: Any) -> Any:
    return (U(a + 1) << U(32)) | U(b + 2)


def pair_members(keys: Array) -> tuple[Array, Array]:
    """The members of the pairs of these keys."""
    return (keys >> U(32)).astype(np.int32) - 1, (keys & U(0xFFFFFFFF)).astype(np.int32) - 2


@compiled
def find(keys: Any, key: Any) -> Any:
    """The place where the key is or would be in an open-addressing table (0 marks a free place)."""
    mask = U(len(keys) - 1)
    i = mix(key) & mask
    while keys[i] != U(0) and keys[i] != key:
        i = (i + U(1)) & mask
    return i


@compiled
def insert_pairs(keys: Any, numbers: Any, a: Any, b: Any, first: Any) -> None:
    """Number the pairs from `first` on; the table must have room."""
    for i in range(len(a)):
        key = pair_key(a[i], b[i])
        at = find(keys, key)
        keys[at] = key
        numbers[at] = first + i


@compiled
def grown(keys: Any, numbers: Any) -> Any:
    """The same table in twice the space."""
    more_keys = np.zeros(len(keys) * 2, np.uint64)
    more_numbers = np.zeros(len(keys) * 2, np.int32)
    for i in range(len(keys)):
        if keys[i] != U(0):
            at = find(more_keys, keys[i])
            more_keys[at] = keys[i]
            more_numbers[at] = numbers[i]
    return more_keys, more_numbers
