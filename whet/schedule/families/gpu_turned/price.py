"""Candidates of turned values and their prices, for a whole population at once."""

from __future__ import annotations

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.expr import elements
from whet.ir.threads import WARP
from whet.schedule.cost.work import lane_step, operations, reads
from whet.schedule.families.gpu_reduce.price import BARRIER_NS
from whet.schedule.families.gpu_spatial.price import LOAD_SLOTS, THREAD_OVERHEAD
from whet.schedule.families.gpu_spatial.rates import (
    Work,
    kernel_ns,
    lines_of,
    nbytes_of,
    touched_bytes,
)
from whet.schedule.families.gpu_turned.lower import WARPS, counts_of
from whet.schedule.families.gpu_turned.match import GpuTurned
from whet.schedule.program.triggers import AT_END, NEVER
from whet.schedule.space.sketch import Population, population

SIZES = (32, 64)


def gpu_turned_holes(s: GpuTurned, target: GpuTarget, threads: int) -> Population:
    """Tiles that neither axis is much shorter than, in shared memory that there is."""
    longest = max(s.read.extent, s.written.extent)
    nbytes = sum(r.dtype.itemsize for r in s.turned)
    found = [
        (n, NEVER) for n in SIZES
        if (n == min(SIZES) or n <= longest) and n * (n + 4) * nbytes <= target.shared_bytes
    ]  # fmt: skip
    return population(("size", "trigger"), found)


def gpu_turned_costs(s: GpuTurned, target: GpuTarget, threads: int, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    size = holes["size"]
    blocks = np.array([float(elements(counts_of(s, int(n)))) for n in size])
    each = size * size / (WARPS * WARP)
    one, instructions = np.ones(len(size)), np.full(len(size), 2.0 + operations(s.stage.body))
    lines, nbytes = one.copy(), np.full(len(size), nbytes_of(s.task.outputs))
    for read in reads(s.stage.body):
        turned = read in s.turned
        step = lane_step(read, s.read if turned else s.written)
        lines += lines_of(read, step, one, one) + turned  # and its cell
        instructions += LOAD_SLOTS * (2 if turned else 1)
        nbytes += touched_bytes(read)
    work = Work(
        blocks, np.full(len(size), WARPS * WARP), THREAD_OVERHEAD + each * instructions,
        each * lines, nbytes, np.zeros(len(size)),
    )  # fmt: skip
    return kernel_ns(work, holes["trigger"] == AT_END, target) + BARRIER_NS["block"]
