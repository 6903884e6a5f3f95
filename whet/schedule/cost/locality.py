"""Addresses apart from each other: pages that are visited, sets of a cache that rows share."""

from __future__ import annotations

import math

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.schedule.program.tile import LINE_BYTES

UNCROWDED = 0.75
"""The part of a set's ways that rows may take without pushing each other out; with as many more
than there are ways, none of them stays."""


PAGE_BYTES = 4096


AGAIN_CYCLES = 2.5
"""To read a few lines in another page than those before, once they are nearby."""


def reachable(step: int, run_bytes: Array) -> Array:
    """The part of a cache's sets that runs of so many bytes fall into, `step` bytes apart.

    Sets are a power of two: runs that are a multiple of one apart share a few of them.
    """
    if step % LINE_BYTES:
        return np.ones(len(run_bytes))
    lines = step // LINE_BYTES
    return np.minimum(1.0, np.ceil(run_bytes / LINE_BYTES) / (lines & -lines))


def distance(step: int) -> float:
    """What it costs to go so many bytes further, against going to another page."""
    return 1.0 if step >= PAGE_BYTES else 0.3


def visit_cycles(lines: Array) -> Array:
    """To read a few lines in another page than those before."""
    return 12 + 5 * lines


def crowding(step: int, rows: Array, target: CpuTarget) -> Array:
    """Lines of so many rows, `step` bytes apart, that share a set of the first cache, against
    those that it holds.

    Lines whose addresses agree modulo the size of one way share a set; a tile that needs more
    of them than a set has ways evicts its own rows before they are used up.
    """
    way = 4096
    if step == 0:
        return np.zeros(len(rows))
    places = way // math.gcd(step, way) if step % way else 1
    ways = max(1, target.l1d_bytes // way)
    crowd: Array = np.ceil(rows / places) / ways
    return crowd
