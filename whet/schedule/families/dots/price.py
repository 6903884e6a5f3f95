"""Prices of inner products, for a whole population at once."""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.schedule.cost.arrival import with_weights
from whet.schedule.cost.lanes import lanes_for
from whet.schedule.cost.numbers.overheads import ACROSS_CYCLES, ELEMENT_CYCLES, REGISTER_TILE_CYCLES
from whet.schedule.cost.numbers.vectors import UNALIGNED
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import halvings, operations, overlapped, shared_out, traffic_cycles
from whet.schedule.families.dots.match import Dots
from whet.schedule.space.sketch import population

LARGEST_TILE = 8


def dot_holes(d: Dots, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Tiles that fit the registers, and blocks from all rows down to one tile."""
    c = d.c
    lanes = lanes_for(d.along.extent, c.reduce.dtype.bits, target)
    rows: list[tuple[int, ...]] = []
    for mr in range(1, min(LARGEST_TILE, c.rows) + 1):
        for nc in range(1, min(LARGEST_TILE, c.columns) + 1):
            if mr * nc + min(mr, nc) + 1 <= target.vector_registers:
                rows += [(mr, nc, lanes, n) for n in halvings(-(-c.rows // mr))]
    return population(("mr", "nc", "lanes", "tiles_per_block"), rows)


def dot_costs(d: Dots, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    c, mr, nc, lanes = d.c, holes["mr"], holes["nc"], holes["lanes"]
    rates = rates_of(target)
    bits, size = c.reduce.dtype.bits, c.reduce.dtype.itemsize
    passes, load_passes = rates.passes(lanes, bits), rates.load_passes(lanes, bits)
    vectors = np.ceil(d.along.extent / lanes) * (c.depth // d.along.extent)
    chains = np.maximum(mr * nc * passes / rates.operations, rates.latency)
    # What lies in the caller's memory crosses from line to line.
    loaded = 2 * mr + (nc if d.packed else 2 * nc)
    term = np.maximum(chains, loaded * load_passes / rates.loads)
    epilogue = mr * nc * (1.0 + operations(c.stage.body) / rates.operations / np.minimum(nc, 8))
    per_tile = (
        UNALIGNED * vectors * term + mr * nc * ACROSS_CYCLES + epilogue + REGISTER_TILE_CYCLES
    )
    tiles, across = -(-c.rows // mr), -(-c.columns // nc)
    steps = c.batch * -(-tiles // holes["tiles_per_block"])
    count = steps * holes["tiles_per_block"] * across
    # Every tile reads its rows and columns from the cache that holds those of the batch.
    near = (c.rows + c.columns) * c.depth * size
    arrival = (mr + nc) * c.depth * size / (
        rates.l1_bytes if near <= target.l1d_bytes // 2
        else rates.l2_bytes if near <= target.l2_bytes // 2 else rates.l3_bytes
    )  # fmt: skip
    traffic = traffic_cycles(c.task.moving, target)
    cycles = overlapped(count * np.maximum(per_tile, arrival), traffic)
    if d.packed and not c.b_is_constant:
        cycles = cycles + ELEMENT_CYCLES * c.batch * c.columns * c.depth
    ns = shared_out(cycles, steps, threads, target)
    return with_weights(ns, c.task.constant_bytes, target, threads)
