"""Addresses apart from each other: pages that are visited, sets of a cache that rows share."""

from __future__ import annotations

import math

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.schedule.cost.numbers.caches import (
    PAGE_BYTES,
    SAME_PAGE,
    VISIT_CYCLES,
    VISIT_LINE_CYCLES,
    WAY_BYTES,
)


def reachable(step: int, run_bytes: Array, line_bytes: int) -> Array:
    """The part of a cache's sets that runs of so many bytes fall into, `step` bytes apart.

    Sets are a power of two: runs that are a multiple of one apart share a few of them.
    """
    if step % line_bytes:
        return np.ones(len(run_bytes))
    lines = step // line_bytes
    return np.minimum(1.0, np.ceil(run_bytes / line_bytes) / (lines & -lines))


def distance(step: int) -> float:
    """The cost of going so many bytes further, against going to another page."""
    return 1.0 if step >= PAGE_BYTES else SAME_PAGE


def visit_cycles(lines: Array) -> Array:
    """To read a few lines in another page than those before."""
    return VISIT_CYCLES + VISIT_LINE_CYCLES * lines


def crowding(step: int, rows: Array, target: CpuTarget) -> Array:
    """Lines of so many rows, `step` bytes apart, that share a set of the first cache, against
    those that it holds.

    Lines whose addresses agree modulo the size of one way share a set; a tile that needs more
    of them than a set has ways evicts its own rows before they are used up.
    """
    if step == 0:
        return np.zeros(len(rows))
    places = WAY_BYTES // math.gcd(step, WAY_BYTES) if step % WAY_BYTES else 1
    ways = max(1, target.l1d_bytes // WAY_BYTES)
    crowd: Array = np.ceil(rows / places) / ways
    return crowd
