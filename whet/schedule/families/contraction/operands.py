"""The factors of a contraction on their way: gathered, copied, from other pages, crowded sets."""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import affine
from whet.ir.expr import Read, Select
from whet.ir.tensor import subexpressions
from whet.schedule.cost.locality import crowding, distance, reachable, visit_cycles
from whet.schedule.cost.numbers.caches import AGAIN_CYCLES, L2_KEPT, UNCROWDED
from whet.schedule.cost.numbers.overheads import (
    AHEAD_CYCLES,
    ALONE_FELT,
    GATHER_CYCLES,
    IN_PLACE_FELT,
    PACKED_CYCLES,
)
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import lane_step
from whet.schedule.families.contraction.match import BESIDE, IN_PLACE, Contraction


def row_elements(c: Contraction) -> float:
    """Elements that a row of the left factor adds to those before: windows overlap."""
    found = [e.tensor.type.size for e in subexpressions(c.a) if isinstance(e, Read)]
    return min(float(c.depth), sum(found) / max(1, c.rows))


def arrival_cycles(
    c: Contraction,
    panels: Array,
    row_bytes: Array,
    tiles: Array,
    blocks: Array,
    pack_b: Array,
    target: CpuTarget,
    threads: int,
) -> Array:
    """Cycles to read b, or to bring it into panels.

    Where b is contiguous, a step of the loop reads a few lines of one row, mostly in another page
    than the step before.  Copied ahead, b goes out to where it came from and back again; copied
    beside, it arrives once per block of rows; read in place, once per tile, though the next times
    from nearby, if a cache has room for rows that lie so far apart.
    """
    elements = c.depth * c.columns
    apart = target.constant("apart_ns") * rates_of(target).clock
    steps, again = panels * c.depth, np.zeros(len(panels))
    if c.b_is_contiguous:
        step = _reduced_step(c) * c.b.dtype.itemsize
        near = distance(step)
        is_far = (threads > 1) | (
            c.batch * elements * c.b.dtype.itemsize > L2_KEPT * target.l2_bytes
        )
        lines = np.ceil(row_bytes / target.line_bytes)
        arrival = steps * (near * visit_cycles(lines) + np.where(is_far, apart, 0.0))
        room = L2_KEPT * target.l2_bytes * reachable(step, row_bytes, target.line_bytes)
        lost = apart + lines * target.line_bytes / rates_of(target).l3_bytes
        again = steps * np.where(c.depth * row_bytes <= room, near * AGAIN_CYCLES, lost)
    else:
        each = GATHER_CYCLES if _is_gathered(c) else PACKED_CYCLES
        arrival = each * elements * np.ones(len(panels))
    # A single tile has little to do while it waits for what comes from far away.
    alone = (tiles == 1) & (c.batch * elements * c.b.dtype.itemsize > target.l2_bytes)
    in_place = np.where(alone, ALONE_FELT, IN_PLACE_FELT) * arrival + np.where(
        tiles > 1, tiles * again, 0.0
    )
    copied = np.where(pack_b == BESIDE, blocks * arrival, arrival + AHEAD_CYCLES * elements)
    result: Array = np.where(pack_b == IN_PLACE, in_place, copied)
    return result


def _is_gathered(c: Contraction) -> bool:
    """True when lanes of b are picked one by one, because they stand under a condition and are
    no neighbours."""
    if not isinstance(c.b, Select):
        return False
    reads = [e for e in subexpressions(c.b) if isinstance(e, Read)]
    return any(lane_step(e, c.vector) not in (0, 1) for e in reads)


def _reduced_step(c: Contraction) -> int:
    """Elements between what neighbouring steps of the loop read of b."""
    reads = [e for e in subexpressions(c.b) if isinstance(e, Read) and len(e.indices) == 1]
    form = affine(reads[0].indices[0])
    return min(abs(form.coefficient(k)) for k in c.reduce.axes)


def crowded_cycles(c: Contraction, mr: Array, target: CpuTarget) -> Array:
    """Cycles that the rows of a tile take in a step of its innermost loop because they push each
    other out of the first cache, and come back from the second."""
    crowd = crowding(abs(row_step(c)) * c.reduce.dtype.itemsize, mr, target)
    lost = np.clip((crowd - UNCROWDED) / (2 * (1 - UNCROWDED)), 0.0, 1.0)
    result: Array = lost * mr * target.line_bytes / rates_of(target).l2_bytes
    return result


def row_step(c: Contraction) -> int:
    """Elements between neighbouring rows of the broadcast operand."""
    if not c.m_axes:
        return 0
    for e in subexpressions(c.a):
        if isinstance(e, Read) and len(e.indices) == 1:
            return affine(e.indices[0]).coefficient(c.m_axes[-1])
    return 0
