"""Prices of Winograd schedules, to be compared with direct ones.

Times are in nanoseconds.  The products are priced like any register tile.  On
top come the two transforms, the traffic of V and M where they do not stay in the second cache,
and above all the weights: transformed, those of 3 x 3 taps are 1.8 (m = 2) or 4 times (m = 4) as
large, and in a network that does not fit the caches they come from memory at every call.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from itertools import product

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import elements
from whet.ir.program import SCRATCH_LIMIT_BYTES
from whet.schedule.algorithms.transforms import Transform, tile_sizes
from whet.schedule.cost.arrival import (
    Panels,
    Share,
    filled_bytes,
    from_far,
    from_second_cache,
    leaves_last_cache,
    lines_in_flight,
    with_weights,
)
from whet.schedule.cost.lanes import lanes_for, prefetches_per_step, sum_blocks
from whet.schedule.cost.numbers.caches import SPILL
from whet.schedule.cost.numbers.overheads import REGISTER_TILE_CYCLES
from whet.schedule.cost.numbers.threads import STEP_NS
from whet.schedule.cost.rates import Rates, rates_of
from whet.schedule.families.winograd.lower import plane
from whet.schedule.families.winograd.match import Winograd
from whet.schedule.families.winograd.precision import longest_sum
from whet.schedule.program.loops import power_of_two_below
from whet.schedule.space.sketch import population


def winograd_holes(w: Winograd, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Every combination of tile sizes that registers, image and caches allow."""
    lanes = lanes_for(w.columns, w.reduce.dtype.bits, target)
    found = []
    depth = w.channels * w.reach
    for m in tile_sizes(w.taps):
        terms = longest_sum(m, w.taps, depth)
        if not w.fits(m) or terms is None:
            continue
        rows, points = _rows(w, m), w.points(m)
        most = min(_tiles(w, m) if w.shifts else rows, 16)
        fits_block = partial(_fits_block, w, points, target)
        for mr, nv in product(range(1, most + 1), range(1, 7)):
            if mr * nv + nv + 1 > target.vector_registers or nv * lanes > w.columns:
                continue
            panels = w.groups * -(-w.columns // (nv * lanes))
            for block in (0, mr, 2 * mr, 4 * mr):
                if block and (block >= rows or w.shifts or not fits_block(block)):
                    continue
                chunks = {panels} if block else {panels, -(-panels // (4 * threads)), 1}
                # A panel that a single tile uses streams in by itself.
                asks = (0, 1) if (block or rows) > mr else (0,)
                found += [
                    (m, mr, nv, lanes, block, chunk, ask, terms)
                    for chunk, ask in product(sorted(chunks), asks)
                ]
    names = ("m", "mr", "nv", "lanes", "block", "panels_per_chunk", "prefetch", "terms")
    return population(names, found)


@lru_cache(maxsize=256)
def _fits_block(w: Winograd, points: int, target: CpuTarget, block: int) -> bool:
    """Whether the transformed tiles and results of a block stay near."""
    sizes = [plane(block * n, w.reduce.dtype) for n in (w.all_channels, w.all_columns)]
    scratch = [points * n * w.reduce.dtype.itemsize for n in sizes]
    return sum(scratch) <= target.l2_bytes and max(scratch) <= SCRATCH_LIMIT_BYTES


def _tiles(w: Winograd, m: int) -> int:
    """Tiles of one image."""
    return elements(w.tiles(m))


def _rows(w: Winograd, m: int) -> int:
    """Tiles of all images."""
    return _tiles(w, m) * elements(w.batch)


def winograd_costs(w: Winograd, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    costs = np.zeros(len(holes["m"]))
    for m in map(int, np.unique(holes["m"])):
        chosen = holes["m"] == m
        costs[chosen] = _costs(w, m, target, threads, {n: c[chosen] for n, c in holes.items()})
    return costs


def _costs(w: Winograd, m: int, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """The costs of rows that all have the same m."""
    mr, nv, lanes, block = (holes[n] for n in ("mr", "nv", "lanes", "block"))
    size, rows, points = w.reduce.dtype.itemsize, _rows(w, m), w.points(m)
    panels = w.groups * -(-w.columns // (nv * lanes))
    chunks = -(-panels // holes["panels_per_chunk"])
    blocked = block > 0
    held = np.where(blocked, block, rows)
    blocks = -(-rows // held)
    rates = rates_of(target)
    passes = rates.passes(lanes, w.reduce.dtype.bits)
    # The products.
    depth = w.channels * w.reach
    step = rates.tile_step(mr, nv, lanes, w.reduce.dtype.bits)
    together = -(-held // mr)
    hints = prefetches_per_step(holes["prefetch"], together, nv * lanes * size)
    step = step + hints * target.constant("hint_ns") * rates.clock
    per_tile = (
        step * depth + REGISTER_TILE_CYCLES + mr * nv * passes * (2 + sum_blocks(depth, holes) / 2)
    )
    if w.shifts:  # a register tile stays within one image
        tiles = rows // _tiles(w, m) * -(-_tiles(w, m) // mr)
    else:
        tiles = blocks * together
    # Panels are read again for every tile, all of them for every block.
    panel_bytes, row_bytes = depth * nv * lanes * size, depth * mr * size
    near = panel_bytes + row_bytes
    weight_bytes = float(points * depth * w.all_columns * size)
    filled = filled_bytes(panel_bytes, weight_bytes, together, hints > 0, target)
    per_tile = from_second_cache(per_tile, panel_bytes, near, target, filled)
    work = points * panels * tiles * per_tile
    # The transforms and, unless it stays in the second cache, the traffic between phases.
    outside = elements(w.positions) / elements(w.batch)
    into = _transform_cycles(w.all_channels, w.depth[-1].extent, w.input_transform(m), rates, lanes)
    out = _transform_cycles(w.all_columns, w.columns, w.output_transform(m), rates, lanes)
    work = work + rows * (into * outside + out)
    scratch = points * held * (w.all_channels + w.all_columns) * size
    moved = 2 * points * rows * (w.all_channels * outside + w.all_columns) * size
    spilled = scratch > target.l2_bytes // 2
    work = work + np.where(spilled, moved / (SPILL * rates.l3_bytes), 0.0)
    # Shares of the cores, each of which reads all weights for every block of its own.
    steps = np.where(blocked, blocks, points * chunks)
    kinds = np.where(blocked, 1, points * chunks)
    nothing = np.zeros(len(mr))
    share = Share(steps, kinds, weight_bytes / kinds, nothing, nothing, True, threads)
    busy = work / steps * share.rounds
    again = share.far_bytes(target)
    lost = leaves_last_cache(weight_bytes, target)
    times = np.where(lost, 1.0, share.times)
    in_flight = lines_in_flight(mr, nv, nv * lanes * size, target)
    ways = Panels(together, hints > 0, times, in_flight)
    cycles = from_far(busy, nothing if lost else again, ways, target, threads)
    time = cycles / rates.clock + steps * STEP_NS / threads
    time = time + np.where(blocked, 1, 3) * target.constant("fork_join_ns") * (threads > 1)
    from_memory = weight_bytes + (again * threads if lost else nothing)
    return with_weights(time, from_memory, target, threads, ways)


def _transform_cycles(count: int, run: int, tile: Transform, rates: Rates, lanes: Array) -> Array:
    """Cycles to transform one tile of `count` channels, which lie in runs of contiguous ones."""
    used = np.minimum(lanes, power_of_two_below(run))
    passes = rates.passes(used, 32)
    vectors = count / run * np.ceil(run / used)
    stores = math.prod(tile.after)
    result: Array = vectors * passes * (tile.operations / rates.operations + stores)
    return result
