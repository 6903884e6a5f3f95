"""Single decisions of a walk over graphs: whether an application may be placed, what becomes of the
graph then, and whether a graph is wanted."""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.superopt.generate.compiled import U, compiled, inlined

COUNT, COLLECT, MARK, STORE, STORE_MARKED = range(5)
"""Tasks of a walk: counting graphs, collecting the pairs of values that occur together, marking
fingerprints in a table (see `marks`), storing graphs, storing those that are marked."""


@compiled
def is_normal(ops: Any, bound: Any, level: Any, at: Any, v: Any) -> Any:
    """Whether v, which is candidate `at`, comes after all that was placed since it is possible."""
    segment = level
    while segment > 0 and at < bound[segment]:
        segment -= 1
        if ops[segment] >= v:
            return False
    return True


@compiled
def is_new(hashes: Any, first: Any, end: Any, h0: Any, h1: Any) -> Any:
    """Whether neither of two results is among the values that applications gave."""
    for q in range(first, end):  # noqa: SIM110 - Numba compiles loops
        if hashes[q] == h0 or (h1 != U(0) and hashes[q] == h1):
            return False
    return True


@compiled
def is_wanted(task: Any, shard: Any, shards: Any, shift: Any, seen: Any, twice: Any, f: Any) -> Any:
    """Whether to store a graph of this fingerprint; where marking is the task, it is marked."""
    if shards > 1 and (f & U(0xFFFF)) * U(shards) >> U(16) != U(shard):
        return False
    if task == STORE:
        return True
    word = f >> shift >> U(6)
    bit = U(1) << (f >> shift & U(63))
    if task == STORE_MARKED:
        return twice[word] & bit != U(0)
    if seen[word] & bit:
        twice[word] |= bit
    else:
        seen[word] |= bit
    return False


@compiled
def is_connected(parts: Any, count: Any, mask: Any) -> Any:
    """Whether an application with these operands joins all parts of a graph."""
    for q in range(count):  # noqa: SIM110 - Numba compiles loops
        if parts[q] & mask == U(0):
            return False
    return True


@compiled
def join(parts: Any, joined: Any, count: Any, mask: Any, own: Any) -> Any:
    """The parts with an application of these operands, and how many there are then."""
    n = 0
    for q in range(count):
        if parts[q] & mask != U(0):
            own |= parts[q]
        else:
            joined[n] = parts[q]
            n += 1
    joined[n] = own
    return n + 1


@compiled
def consume(where: Any, consumed: Any, a: Any, b: Any, step: Any) -> None:
    """Count the uses of two operands up or down."""
    if a >= 0:
        consumed[where[a]] += step
    if b >= 0:
        consumed[where[b]] += step


@inlined
def longer(array: Any) -> Any:
    """The array with twice the room."""
    return np.concatenate((array, np.empty_like(array)))
