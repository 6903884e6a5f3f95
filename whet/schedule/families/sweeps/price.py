"""Prices of rows that are reduced, for a whole population at once."""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import elements
from whet.schedule.cost.arrival import with_weights
from whet.schedule.cost.lanes import lanes_for
from whet.schedule.cost.locality import distance
from whet.schedule.cost.numbers.caches import RUN_CYCLES, SAME_PAGE
from whet.schedule.cost.numbers.overheads import PANEL_CYCLES
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import (
    form_of,
    halvings,
    lane_step,
    operations,
    overlapped,
    reads,
    shared_out,
    traffic_cycles,
)
from whet.schedule.families.sweeps.match import Sweeps
from whet.schedule.space.sketch import population

ROW_BYTES = 8 << 10
"""What is kept of a chunk, at most: a part of the first cache."""


BLOCKS = (4, 8)
"""Terms of a block: so many rows are read side by side."""


def sweep_holes(s: Sweeps, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Panels that fit the registers, and chunks that fit the first cache."""
    itemsize = s.reduce.dtype.itemsize
    lanes = lanes_for(s.vector.extent, 8 * itemsize, target)
    rows: list[tuple[int, ...]] = []
    for nv in (1, 2, 4):
        width = nv * lanes
        if width > s.vector.extent:
            continue
        panels = -(-s.vector.extent // width)
        for chunk in halvings(panels):
            if chunk * width * itemsize <= ROW_BYTES:
                rows += [(nv, lanes, n, chunk) for n in BLOCKS if n <= s.terms[-1].extent]
    return population(("nv", "lanes", "block", "panels_per_chunk"), rows)


def sweep_costs(s: Sweeps, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    nv, lanes, block = holes["nv"], holes["lanes"], holes["block"]
    rates = rates_of(target)
    bits = 8 * s.reduce.dtype.itemsize
    chunk = holes["panels_per_chunk"]
    panels = -(-s.vector.extent // (nv * lanes))
    steps = elements(s.outer) * -(-panels // chunk)
    passes, load_passes = rates.passes(lanes, bits), rates.load_passes(lanes, bits)
    moved = [e for e in reads(s.value) if lane_step(e, s.vector)]
    fixed = len(reads(s.value)) - len(moved)
    product = s.reduce.kind == "sum" and operations(s.value) > 0
    work = (operations(s.value, s.vector) + 1.0 - product) * nv * passes / rates.operations
    loads = (len(moved) * nv * load_passes + fixed) / rates.loads
    kept = 2 * nv * load_passes / rates.loads
    whole = elements(s.terms)
    blocks = np.ceil(s.terms[-1].extent / block) * whole / s.terms[-1].extent
    per_panel = whole * np.maximum(work, loads) + blocks * (kept + PANEL_CYCLES + rates.latency)
    finish = nv * passes * (2.0 + operations(s.stage.body) / rates.operations)
    arrival = traffic_cycles(s.task.moving, target)
    cycles = overlapped(steps * chunk * (per_panel + finish), arrival)
    # Nothing is on its way while a row begins, unless it follows the one before.
    steps_over = [abs(form_of(e).coefficient(s.terms[-1])) * e.dtype.itemsize for e in moved]
    far = np.where(chunk < panels, sum(map(distance, steps_over)), SAME_PAGE * len(moved))
    cycles = cycles + steps * whole * RUN_CYCLES * far
    ns = shared_out(cycles, steps, threads, target)
    return with_weights(ns, s.task.constant_bytes, target, threads)
