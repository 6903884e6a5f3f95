"""Candidates of the sketch of long reductions and their prices, for a whole population at once."""

from __future__ import annotations

import itertools

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.expr import elements
from whet.ir.threads import WARP
from whet.schedule.cost.numbers.gpus import WINDOW_NS
from whet.schedule.cost.work import lane_step, operations, reads
from whet.schedule.families.gpu_reduce.across import exchanges_of, steps_of
from whet.schedule.families.gpu_reduce.lower import STEPS_AT_ONCE
from whet.schedule.families.gpu_reduce.match import (
    ALONG_OUTPUTS,
    ALONG_TERMS,
    GpuReduce,
)
from whet.schedule.families.gpu_spatial.price import (
    LOAD_SLOTS,
    THREAD_OVERHEAD,
    VECTOR_BYTES,
)
from whet.schedule.families.gpu_spatial.rates import (
    LINE_BYTES,
    SECTOR_BYTES,
    Work,
    kernel_ns,
    lines_of,
    nbytes_of,
    touched_bytes,
    wasted,
)
from whet.schedule.program.triggers import AT_END, NEVER
from whet.schedule.space.sketch import Population, population

BARRIER_NS = {"block": 70.0, "cluster": 300.0}
"""A step of combining what threads have: shared memory written, waited for and read."""
EXCHANGE_CYCLES = 30
"""An exchange between lanes and the operation behind it, by their latencies: not measured."""
CLUSTERS = (8, 16)
"""Blocks of a cluster, where there is one."""
SPLITS, THREADS = (8, 32, 128, 256), (64, 128, 256)
LARGEST = 1024
"""Threads of a block that has an output of its own, where there are few outputs."""
FEW_OUTPUTS = 16
FEWEST_STEPS = 2
"""Terms of a thread, at least: with fewer, fewer threads do."""


def gpu_reduce_holes(s: GpuReduce, target: GpuTarget, threads: int) -> Population:
    """Shares of the terms that leave every thread some."""
    terms = elements(s.terms)
    size = s.value.dtype.itemsize
    found: list[tuple[int, ...]] = []
    shares = [*itertools.product(SPLITS, THREADS)]
    if elements(s.stage.axes) <= FEW_OUTPUTS:
        shares.append((LARGEST, LARGEST))
    for (split, count), along in itertools.product(shares, (0, 1)):
        if split > count or (along == ALONG_OUTPUTS and split == count and s.columns > 1):
            continue
        row = s.terms[-1].extent if along == ALONG_TERMS else s.columns
        for width in (1, 2, 4, 8):
            own = terms // (split * (width if along == ALONG_TERMS else 1))
            if own < FEWEST_STEPS or (width > 1 and (row % width or width * size > VECTOR_BYTES)):
                continue
            most = min(own // 4, target.cluster_limit) if split == count else 1
            ranks = (1, *(n for n in CLUSTERS if n <= most))
            found += [(split, count, along, width, n, NEVER) for n in ranks]
    return population(("split", "threads", "along", "width", "ranks", "trigger"), found)


def gpu_reduce_costs(s: GpuReduce, target: GpuTarget, threads: int, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    split, per_block, width, ranks = (holes[n] for n in ("split", "threads", "width", "ranks"))
    inner = holes["along"] == ALONG_TERMS
    outputs = elements(s.stage.axes)
    total = np.where(inner, outputs, np.ceil(outputs / width))
    blocks = np.ceil(total * split / per_block) * ranks
    steps = np.ceil(elements(s.terms) / (split * ranks * np.where(inner, width, 1)))
    instructions = THREAD_OVERHEAD + steps * (_places(s) + width * (1 + operations(s.value)))
    instructions = instructions + steps * len(reads(s.value)) * LOAD_SLOTS
    lines, nbytes = np.zeros(len(split)), np.full(len(split), nbytes_of(s.task.outputs))
    constants = {s.task.buffers[t].name: t for t in s.task.constants if t in s.task.buffers}
    cold = np.zeros(len(split))
    beside = np.minimum(np.where(inner, split, per_block // split), WARP)
    for along in (ALONG_TERMS, ALONG_OUTPUTS):
        rows = holes["along"] == along
        axis = s.terms[-1] if along == ALONG_TERMS else s.vector
        for read in reads(s.value):
            step = lane_step(read, axis)
            if step == 1:
                run = beside[rows] * width[rows] * read.dtype.itemsize
                lines[rows] += steps[rows] * WARP / beside[rows] * np.ceil(run / LINE_BYTES)
                spare = np.ceil(run / SECTOR_BYTES) * SECTOR_BYTES / run
            else:
                found = lines_of(read, step, width[rows], width[rows])
                lines[rows] += steps[rows] * found * width[rows]
                spare = wasted(read, axis, ())
            (cold if read.tensor.name in constants else nbytes)[rows] += touched_bytes(read) * spare
    rounds = np.maximum(np.ceil(steps / STEPS_AT_ONCE) - 1, 0)
    work = Work(blocks, per_block, instructions, lines, nbytes, rounds, cold)
    ns = WINDOW_NS + kernel_ns(work, holes["trigger"] == AT_END, target)
    ns = ns + nbytes_of([*constants.values()]) / target.memory_gbs
    meetings = np.array([1.0 + len(tuple(steps_of(int(n)))) for n in split])
    apart = meetings * BARRIER_NS["block"]
    ns = ns + np.where(inner, meeting_ns(split, target), apart)
    return np.asarray(ns + np.where(ranks > 1, 2 * BARRIER_NS["cluster"], 0.0))


def meeting_ns(threads: Array, target: GpuTarget) -> Array:
    """Nanoseconds until threads that follow each other have the total of their numbers: the lanes
    of a warp exchange them, and several warps meet once."""
    exchanges = np.array([len(tuple(exchanges_of(int(n)))) for n in threads])
    met = np.where(threads > WARP, BARRIER_NS["block"], 0.0)
    return np.asarray(exchanges * EXCHANGE_CYCLES / target.clock_ghz + met)


def _places(s: GpuReduce) -> float:
    """Instructions that find the place of a term."""
    return 2.0 + 8.0 * (len(s.terms) - 1)
