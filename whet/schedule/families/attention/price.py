"""Prices of attention schedules, for a whole population at once."""

from __future__ import annotations

import itertools

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import affine
from whet.ir.expr import Read, elements
from whet.schedule.cost.arrival import (
    Panels,
    Share,
    filled_bytes,
    from_far,
    from_second_cache,
    lines_in_flight,
    with_weights,
)
from whet.schedule.cost.lanes import lanes_for, longest_sum, prefetches_per_step
from whet.schedule.cost.locality import crowding, distance
from whet.schedule.cost.numbers.caches import AGAIN_CYCLES, L2_KEPT
from whet.schedule.cost.numbers.overheads import PANEL_COPY_CYCLES, REGISTER_TILE_CYCLES
from whet.schedule.cost.numbers.vectors import LEAST_CHAINS, STAGE_REGISTERS
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import fork_join_ns, halvings, shared_out
from whet.schedule.families.attention.match import (
    MOST_ROWS,
    SCRATCH_BYTES,
    Attention,
    Product,
    rows_together,
)
from whet.schedule.families.rows.price import register_cycles, stage_cycles
from whet.schedule.program.access import reads_constants_alone
from whet.schedule.space.sketch import population


def attention_holes(f: Attention, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Every tile that the registers allow, and blocks from all rows down to one tile."""
    first = f.first
    rows, columns = first.row.extent, first.column.extent
    item = first.reduce.dtype.itemsize
    lanes = lanes_for(columns, first.reduce.dtype.bits, target)
    registers = target.vector_registers
    enough = min(LEAST_CHAINS, min(rows, MOST_ROWS) * min(6, columns // lanes))
    whole = -(-columns // lanes) if f.rows_fit_registers else registers
    constant = any(g is not None and reads_constants_alone(g.b, f.task) for g in (first, f.second))
    asks = (0, 1) if constant else (0,)
    found = []
    for mr in range(1, min(rows, MOST_ROWS) + 1):
        in_place = _stay_apart(first, mr, target)
        lanes2, nv2 = 1, 1
        if f.second is not None:
            width = f.second.column.extent
            lanes2 = lanes_for(width, first.reduce.dtype.bits, target)
            nv2 = max(1, min((registers - 1) // (mr + 1), width // lanes2))
        tiles = [(nv, 0) for nv in range(1, min(6, columns // lanes) + 1)
                 if mr * nv + nv + 1 <= registers and mr * nv >= enough]  # fmt: skip
        if mr * whole + min(mr, whole) + 1 <= registers:
            tiles.append((whole, 1))
        blocks = {max(mr, -(-n // mr) * mr) for n in halvings(rows)} | {rows}
        for (nv, is_whole), block in itertools.product(tiles, sorted(blocks)):
            copied = 0 if in_place else first.depth.extent
            fits = block * (columns + copied) * item <= SCRATCH_BYTES
            if block <= rows and fits:
                sizes = (mr, nv, lanes, nv2, lanes2, block, int(in_place), is_whole)
                found += [(*sizes, ask) for ask in asks]
    names = ("mr", "nv", "lanes", "nv2", "lanes2", "block", "in_place", "whole", "prefetch")
    return population(names, found)


def _stay_apart(g: Product, rows: int, target: CpuTarget) -> bool:
    """Whether so many rows of the left factor, read where they lie, stay in the first cache."""
    if g.row_step is None:
        return False
    step = abs(g.row_step) * g.reduce.dtype.itemsize
    return bool(crowding(step, np.array([rows]), target)[0] <= 1.0)


def attention_costs(
    f: Attention, target: CpuTarget, threads: int, holes: dict[str, Array]
) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    first, rates = f.first, rates_of(target)
    block, batch = holes["block"], elements(first.outer)
    steps = batch * -(-first.row.extent // block)
    whole, mr, nv = holes["whole"] > 0, holes["mr"], holes["nv"]
    # Whole rows are not stored before the stages, but for those that leave these no registers.
    over = np.maximum(0, mr * nv + STAGE_REGISTERS - target.vector_registers)
    stored = np.where(whole, over, mr * nv)
    cycles = _tiles(f, first, target, holes, nv, holes["lanes"], stored)
    copies = block * first.depth.extent * PANEL_COPY_CYCLES
    cycles = cycles + np.where(holes["in_place"] > 0, 0.0, copies)
    together = np.array([rows_together(f, int(b)) for b in block])
    vectors = np.where(together > 1, 2, 4)
    for stage in f.rows.stages:
        row = stage_cycles(f.rows, stage, rates, holes["lanes"], vectors, together)
        near = register_cycles(f.rows, stage, rates, holes["lanes"], nv, mr)
        cycles = cycles + block * np.where(whole, near, row)
    # Scores that are more than the first cache holds come back from the second, or from beyond.
    scores = block * first.column.extent * first.reduce.dtype.itemsize
    back = scores / rates.l2_bytes + np.where(
        scores > L2_KEPT * target.l2_bytes, 2 * scores / rates.l3_bytes, 0.0
    )
    cycles = cycles + np.where((scores > target.l1d_bytes // 2) & ~whole, back, 0.0)
    copied = _copied(f, first)
    if f.second is not None:
        nv2 = holes["nv2"]
        cycles = cycles + _tiles(f, f.second, target, holes, nv2, holes["lanes2"], mr * nv2)
        copied = copied + _copied(f, f.second)
    busy = cycles * np.ceil(steps / threads)
    prefetched = holes.get("prefetch", 0 * mr) > 0
    row_bytes = nv * holes["lanes"] * first.reduce.dtype.itemsize
    times = np.maximum(1.0, steps / threads)
    panels = Panels(-(-block // mr), prefetched, times, lines_in_flight(mr, nv, row_bytes, target))
    busy = from_far(busy, _far_bytes(f, steps, target, threads), panels, target, threads)
    ns = shared_out(busy * steps / np.ceil(steps / threads), steps, threads, target)
    ns = ns + batch * copied / threads / rates.clock
    # Copies ahead of the steps are a loop of their own.  What they write leaves the cache of the
    # core that copied and goes to that of the core that multiplies.
    ahead = (block < first.row.extent) & (copied > 0.0)
    nbytes = batch * copied / PANEL_COPY_CYCLES * first.reduce.dtype.itemsize
    moved = 2 * nbytes / rates.l3_bytes / rates.clock / threads
    loop = fork_join_ns(np.array(batch), threads, target)
    ns = ns + np.where(ahead, loop + moved, 0.0)
    return with_weights(ns, f.task.constant_bytes, target, threads, panels)


def _far_bytes(f: Attention, steps: Array, target: CpuTarget, threads: int) -> Array:
    """Bytes of right factors that come from beyond the second cache of a thread's core.

    Every block goes through all of them.
    """
    nothing = np.zeros(len(steps))
    found = nothing
    for g in (f.first, f.second):
        if g is None:
            continue
        nbytes = float(g.depth.extent * g.column.extent * g.reduce.dtype.itemsize)
        constant = reads_constants_alone(g.b, f.task)
        share = Share(steps, nothing + 1, nothing + nbytes, nothing, nothing, constant, threads)
        found = found + share.far_bytes(target)
    return found


def _tiles(
    f: Attention,
    g: Product,
    target: CpuTarget,
    holes: dict[str, Array],
    nv: Array,
    lanes: Array,
    stored: Array,
) -> Array:
    """Cycles for all tiles of a block, of which so many vectors are stored."""
    mr, block = holes["mr"], holes["block"]
    rates, bits, size = rates_of(target), g.reduce.dtype.bits, g.reduce.dtype.itemsize
    passes = rates.passes(lanes, bits)
    cycle = rates.tile_step(mr, nv, lanes, bits)
    tiles, panels = -(-block // mr), -(-g.column.extent // (nv * lanes))
    constant = reads_constants_alone(g.b, f.task)
    asks = holes.get("prefetch", 0 * mr) * constant
    hints = prefetches_per_step(asks, tiles, nv * lanes * size)
    cycle = cycle + hints * target.constant("hint_ns") * rates.clock
    item = g.depth.extent * size
    panel, near = item * nv * lanes, item * (nv * lanes + mr)
    tile = cycle * g.depth.extent + REGISTER_TILE_CYCLES + stored * passes * 2
    terms = longest_sum(g.depth.extent, g.reduce.dtype)
    tile = tile + mr * nv * passes * (g.depth.extent / terms / 2 if terms else 0.0)
    filled = filled_bytes(panel, item * g.column.extent, tiles, asks > 0, target)
    tile = from_second_cache(tile, panel, near, target, filled)
    result: Array = tiles * panels * tile
    if g.b_is_contiguous and not constant:
        # Steps of the sum read a few lines each, mostly in another page than the step before.
        step = abs(_depth_step(g)) * size
        apart = (step > nv * lanes * size) & (item > target.l1d_bytes // 2)
        result = result + apart * AGAIN_CYCLES * distance(step) * tiles * panels * g.depth.extent
    return result


def _depth_step(g: Product) -> int:
    """Elements from one term of the sum to the next in a right factor that is read in place."""
    assert isinstance(g.b, Read)
    return affine(g.b.indices[0]).coefficient(g.depth)


def _copied(f: Attention, g: Product) -> float:
    """Cycles to bring the right factor of one batch into panels."""
    stays = g.b_is_contiguous or reads_constants_alone(g.b, f.task)
    return 0.0 if stays else g.depth.extent * g.column.extent * PANEL_COPY_CYCLES
