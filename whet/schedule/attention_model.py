"""What an attention schedule should cost, for a whole population at once."""

from __future__ import annotations

import itertools

import numpy as np

from whet.core.target import Target
from whet.core.types import Array
from whet.ir.expr import elements
from whet.schedule.attention import (
    MOST_ROWS,
    SCRATCH_BYTES,
    Attention,
    Product,
    rows_together,
)
from whet.schedule.model import crowding, lanes_for
from whet.schedule.rates import rates_of
from whet.schedule.rows_model import register_cycles, stage_cycles
from whet.schedule.sketch import population
from whet.schedule.work import fork_join_ns, halvings, shared_out

STREAMED = 0.9
"""What arrives from the second cache while tiles are computed, against what could."""
FELT = 0.05
"""What a wait costs that falls into time that the core is busy."""
FELT_FROM_FAR = 0.7
"""What a wait for what comes from beyond the second cache costs, which takes too long to hide."""
TILE_CYCLES = 12.0
"""Loops and addresses around a tile."""
MIN_CHAINS = 8
"""Sums at once, if there are as many: with fewer, each waits for its last multiply-add."""
STAGE_REGISTERS = 14
"""What row stages need besides the rows: constants and values on the way."""
COPY_CYCLES = 0.5
"""To bring an element into a panel."""


def attention_holes(f: Attention, target: Target, threads: int) -> dict[str, Array]:
    """Every tile that the registers allow, and blocks from all rows down to one tile."""
    first = f.first
    rows, columns = first.row.extent, first.column.extent
    item = first.reduce.dtype.itemsize
    lanes = lanes_for(columns, first.reduce.dtype.bits, target)
    registers = target.vector_registers
    enough = min(MIN_CHAINS, min(rows, MOST_ROWS) * min(6, columns // lanes))
    whole = -(-columns // lanes) if f.rows_fit_registers else registers
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
        sizes = {max(mr, -(-n // mr) * mr) for n in halvings(rows)} | {rows}
        for (nv, is_whole), block in itertools.product(tiles, sorted(sizes)):
            fits = block * (columns + first.depth.extent) * item <= SCRATCH_BYTES
            if block <= rows and fits:
                found.append((mr, nv, lanes, nv2, lanes2, block, int(in_place), is_whole))
    names = ("mr", "nv", "lanes", "nv2", "lanes2", "block", "in_place", "whole")
    return population(names, found)


def _stay_apart(g: Product, rows: int, target: Target) -> bool:
    """Whether so many rows of the left factor, read where they lie, stay in the first cache."""
    if g.row_step is None:
        return False
    step = abs(g.row_step) * g.reduce.dtype.itemsize
    return bool(crowding(step, np.array([rows]), target)[0] <= 1.0)


def attention_costs(f: Attention, target: Target, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    first, rates = f.first, rates_of(target)
    block, batch = holes["block"], elements(first.outer)
    steps = batch * -(-first.row.extent // block)
    whole, mr, nv = holes["whole"] > 0, holes["mr"], holes["nv"]
    # Whole rows are not stored before the stages, but for those that leave these no registers.
    over = np.maximum(0, mr * nv + STAGE_REGISTERS - target.vector_registers)
    stored = np.where(whole, over, mr * nv)
    cycles = _tiles(first, target, mr, nv, holes["lanes"], block, stored)
    copies = block * first.depth.extent * COPY_CYCLES
    cycles = cycles + np.where(holes["in_place"] > 0, 0.0, copies)
    together = np.array([rows_together(f, int(b)) for b in block])
    vectors = np.where(together > 1, 2, 4)
    for stage in f.rows.stages:
        row = stage_cycles(f.rows, stage, rates, holes["lanes"], vectors, together)
        near = register_cycles(f.rows, stage, rates, holes["lanes"], nv, mr)
        cycles = cycles + block * np.where(whole, near, row)
    # Scores that are more than the first cache holds come back from the second.
    scores = block * first.column.extent * first.reduce.dtype.itemsize
    far = (scores > target.l1d_bytes // 2) & ~whole
    cycles = cycles + np.where(far, scores / rates.l2_bytes, 0.0)
    copied = _copied(first)
    cycles = cycles * steps
    if f.second is not None:
        nv2 = holes["nv2"]
        tiles = _tiles(f.second, target, mr, nv2, holes["lanes2"], block, mr * nv2)
        cycles, copied = cycles + tiles * steps, copied + _copied(f.second)
    ns = shared_out(cycles + batch * copied, steps, threads, target)
    # Copies ahead of the steps are a loop of their own.  What they write leaves the cache of the
    # core that copied and goes to that of the core that multiplies.
    ahead = (block < first.row.extent) & (copied > 0.0)
    nbytes = batch * copied / COPY_CYCLES * first.reduce.dtype.itemsize
    moved = 2 * nbytes / rates.l3_bytes / rates.clock / threads
    loop = fork_join_ns(np.array(batch), threads, target)
    return ns + np.where(ahead, loop + moved, 0.0)


def _tiles(
    g: Product, target: Target, mr: Array, nv: Array, lanes: Array, block: Array, stored: Array
) -> Array:
    """Cycles for all tiles of a block, of which so many vectors are stored."""
    rates, bits = rates_of(target), g.reduce.dtype.bits
    passes = rates.passes(lanes, bits)
    fma = mr * nv * passes / rates.operations
    loads = (mr + nv * rates.load_passes(lanes, bits)) / rates.loads
    cycle = np.maximum(np.maximum(fma, loads), rates.latency)
    count = -(-block // mr) * -(-g.column.extent // (nv * lanes))
    item = g.depth.extent * g.reduce.dtype.itemsize
    panel, near = item * nv * lanes, item * (nv * lanes + mr)
    # A panel that every tile reads anew from the second cache must arrive as fast as it is used;
    # where there is time for that, it is still felt.
    arrival = np.where(near <= target.l1d_bytes // 2, 0.0, panel / (STREAMED * rates.l2_bytes))
    busy = cycle * g.depth.extent
    tile = np.maximum(busy, arrival) + FELT * np.minimum(busy, arrival)
    tile = tile + TILE_CYCLES + stored * passes * 2
    # A right factor that the second cache does not hold comes from further out for every block.
    whole = item * g.column.extent
    far = FELT_FROM_FAR * whole / rates.l3_bytes if whole > target.l2_bytes // 2 else 0.0
    result: Array = count * tile + far
    return result


def _copied(g: Product) -> float:
    """Cycles to bring the right factor of one batch into panels."""
    return 0.0 if g.b_is_contiguous else g.depth.extent * g.column.extent * COPY_CYCLES
