"""Prices of staged windows, for a whole population at once.

A block is its copy, bound by stores or by the shuffles that part even from odd columns, and its
tiles, bound by multiply-adds, by loads from the first cache (most of which straddle two lines)
or by dependency chains.
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import Binary, elements
from whet.schedule.cost.arrival import with_weights
from whet.schedule.cost.lanes import lanes_for
from whet.schedule.cost.numbers.caches import (
    BY_TILES,
    CROWDED,
    HIDDEN,
    IN_FLIGHT,
    REACH_CYCLES,
    ROOM_TO_STREAM,
    STALL_CYCLES,
)
from whet.schedule.cost.numbers.overheads import BAND_CYCLES, COPIED_ROW_CYCLES, WINDOW_TILE_CYCLES
from whet.schedule.cost.numbers.vectors import PARTING_SLOTS, STORE_SLOTS, STRADDLING_ROW
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import (
    halvings,
    lane_step,
    operations,
    overlapped,
    reads,
    shared_out,
    traffic_cycles,
)
from whet.schedule.families.staged.match import Staged, by_columns, copy_of
from whet.schedule.program.accumulate import loop_kinds
from whet.schedule.space.sketch import population

NAMES = ("px", "nv", "lanes", "rows", "blocks_per_step", "ahead")


def staged_holes(s: Staged, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Tiles that fit the registers, blocks whose copy stays in the first cache."""
    bits = max(8, s.window.read.dtype.bits)
    full = max(1, target.vector_bits // bits)
    fitting = lanes_for(s.width, bits, target)
    # One vector with idle lanes instead of two that overlap, or narrower ones that idle less.
    widths = {fitting, max(1, fitting // 2), min(full, 2 * fitting)}
    terms = elements(s.unguarded[1].axes)
    outer = elements(s.outer)
    found: list[tuple[int, ...]] = []
    for lanes in sorted(w for w in widths if w >= s.border):
        for px in (1, 2, 4, 6, 7, 8):
            for nv in (1, 2):
                kept = min(terms, 12)  # weights of the window that stay in registers
                if px > s.height or (nv > 1 and nv * lanes > s.width):
                    continue
                if px * nv > 1 and px * nv * 2 + kept > target.vector_registers + 4:
                    continue
                for rows in halvings(s.height):
                    copied = copy_of(s, lanes, rows).size * bits // 8
                    if rows < px or (copied > target.l1d_bytes and rows > px):
                        continue
                    total = outer * -(-s.height // rows)
                    shares = halvings(total) if threads > 1 else [total]
                    by_tiles = (2,) if _may_copy_by_tiles(s, target, px, rows, copied) else ()
                    found += [(px, nv, lanes, rows, share, ahead) for share in shares
                              for ahead in ((0, 1) if share > 1 else (0,)) + by_tiles]  # fmt: skip
    return population(NAMES, found)


def _may_copy_by_tiles(s: Staged, target: CpuTarget, px: int, rows: int, copied: int) -> bool:
    """Whether copying may go on while computing does: the first cache has room for what streams
    through, and no columns are parted, which would take the units that computing needs."""
    several = s.rows is not None and rows >= 2 * px
    return several and s.columns.step == 1 and 2 * copied <= target.l1d_bytes


def staged_costs(s: Staged, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    blocks = elements(s.outer) * -(-s.height // holes["rows"])
    steps = -(-blocks // holes["blocks_per_step"])
    ahead = holes["ahead"]
    shape = np.stack([*(holes[n] for n in NAMES[:4]), ahead])
    shapes, place = np.unique(shape, axis=1, return_inverse=True)
    per_block = np.array([_block_cycles(s, target, *map(int, x)) for x in shapes.T])
    # One block more is copied in vain where whole ones are copied ahead.
    count = steps * (holes["blocks_per_step"] + 0.3 * (ahead == 1))
    traffic = traffic_cycles(s.task.moving, target)
    cycles = overlapped(count * per_block[place.reshape(-1)], traffic)
    ns = shared_out(cycles, steps, threads, target)
    return with_weights(ns, s.task.constant_bytes, target, threads)


def _block_cycles(
    s: Staged, target: CpuTarget, px: int, nv: int, lanes: int, rows: int, ahead: int
) -> float:
    width = nv * lanes
    tiles = -(-rows // px) * -(-s.width // width)
    copied = _copy_cycles(s, target, lanes, rows)
    per_tile = _tile_cycles(s, target, px, nv, lanes)
    computed = tiles * per_tile
    # Of a block that is copied tile by tile, about half is still to be read.
    size = copy_of(s, lanes, rows).size * (1, 2, 0.5)[ahead]
    share = size * s.window.read.dtype.itemsize / target.l1d_bytes
    crowded = 1.0 + CROWDED * max(0.0, share - ROOM_TO_STREAM)
    first, hidden = 0.0, HIDDEN
    if ahead == 2:
        first = copied * copy_of(s, lanes, px).rows / copy_of(s, lanes, rows).rows
        first += BAND_CYCLES * -(-rows // px)
        hidden = min(1.0, REACH_CYCLES / (-(-s.width // width) * per_tile))
    later = max(0.0, copied - first)
    busy = first + max(later, computed) + (1 - hidden) * min(later, computed)
    fitted = BY_TILES if ahead == 2 else 1.0
    return crowded * fitted * (busy + (ahead != 1) * STALL_CYCLES)


def _copy_cycles(s: Staged, target: CpuTarget, lanes: int, rows: int) -> float:
    rates, bits = rates_of(target), max(8, s.window.read.dtype.bits)
    passes = float(rates.load_passes(np.asarray(lanes), bits))
    copy = copy_of(s, lanes, rows)
    vectors = copy.phases * copy.pitch // lanes
    slots = vectors * passes * (STORE_SLOTS + (copy.phases - 1) * PARTING_SLOTS)
    return copy.rows * (slots / rates.loads + COPIED_ROW_CYCLES)


def _tile_cycles(s: Staged, target: CpuTarget, px: int, nv: int, lanes: int) -> float:
    rates, bits = rates_of(target), max(8, s.window.read.dtype.bits)
    passes = float(rates.passes(np.asarray(lanes), bits))
    load_passes = float(rates.load_passes(np.asarray(lanes), bits))
    body, reduce = s.unguarded
    axes = by_columns(s, reduce).axes
    terms = elements(axes)
    down = 1 if s.rows is None else elements([a for a in reduce.axes if a in s.rows_reduced])
    apart = 0 if s.rows is None else (px - 1) * s.rows.step
    # Rows of the copy that no tap of another row touches are not read.
    touched = min(px * down, apart + (1 if s.rows is None else s.rows.high - s.rows.low + 1))
    straddling = 1 + (STRADDLING_ROW - 1) * min(1.0, lanes * bits / 512)
    written = elements([a for a, kind in zip(axes, loop_kinds(axes)) if kind == "unroll"])
    image = touched * terms // down if written == terms else px * terms
    loads = nv * image * load_passes * straddling
    beside = [r for r in reads(body) if lane_step(r, s.columns.axis) != 0]
    loads += px * nv * load_passes * (STORE_SLOTS + len(beside))
    if written < terms:
        loads += terms * (len(reads(reduce.value)) - 1)
    product = isinstance(reduce.value, Binary) and reduce.value.op == "mul"
    per_term = operations(reduce.value) + (0.0 if product and reduce.kind == "sum" else 1.0)
    work = px * nv * passes * (terms * per_term + operations(body))
    issue = max(work / rates.operations, loads / rates.loads)
    issue += px * rates.masked_store * (nv * lanes > s.width)
    # The next tile starts while the chains of this one end.
    chain = rates.latency * terms / max(1.0, IN_FLIGHT / (work + loads))
    return max(issue, chain) + WINDOW_TILE_CYCLES
