"""Prices of slab schedules, for a whole population at once."""

from __future__ import annotations

import math

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.schedule.cost.numbers.overheads import SQUARE_TILE_CYCLES, TRANSPOSE_CYCLES
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import shared_out, traffic_cycles
from whet.schedule.families.contraction.price import contraction_costs, contraction_holes
from whet.schedule.families.slabs.match import Side, Slabs
from whet.schedule.space.sketch import Population


def slab_holes(s: Slabs, target: CpuTarget, threads: int) -> Population:
    """The tile sizes of the contraction; slabs are what threads share."""
    return contraction_holes(s.contraction, target, 1)


def slab_costs(s: Slabs, target: CpuTarget, threads: int, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    rates = rates_of(target)
    multiplied = s.images * contraction_costs(s.contraction, target, 1, holes) * rates.clock
    copied = sum(s.count * _transpose_cycles(side, target) for side in (s.source, s.target))
    moved = traffic_cycles((s.source.tensor, s.target.tensor), target)
    cycles: Array = multiplied + max(copied, moved)
    steps = 0 * multiplied + s.count
    return shared_out(cycles, steps, threads, target)


def _transpose_cycles(side: Side, target: CpuTarget) -> float:
    """Cycles to turn one slab, tile by tile."""
    size, bits = side.tile, side.tensor.dtype.bits
    tiles = -(-side.members // size) * -(-side.tensor.shape[-1] // size)
    tiles *= math.prod(side.tensor.shape[a] for a in side.spatial[:-1])
    passes = float(rates_of(target).passes(np.asarray(size), bits))
    return tiles * (passes * size * (2.0 + TRANSPOSE_CYCLES * math.log2(size)) + SQUARE_TILE_CYCLES)
