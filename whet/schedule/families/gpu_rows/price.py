"""Candidates of the row sketch of GPUs and their prices, for a whole population at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.expr import Expr, Read, elements
from whet.ir.tensor import subexpressions
from whet.ir.threads import WARP
from whet.schedule.cost.work import lane_step, operations, reads
from whet.schedule.families.gpu_reduce.price import BARRIER_NS, meeting_ns
from whet.schedule.families.gpu_rows.loads import (
    KEPT_LIMIT,
    REGISTERS,
    elements_of_thread,
    lines_kept,
    loads_of,
)
from whet.schedule.families.gpu_rows.match import GpuRows
from whet.schedule.families.gpu_spatial.price import THREAD_OVERHEAD, VECTOR_BYTES
from whet.schedule.families.gpu_spatial.rates import (
    Work,
    kernel_ns,
    lines_of,
    nbytes_of,
    touched_bytes,
    wasted,
)
from whet.schedule.program.triggers import AT_END, NEVER
from whet.schedule.space.sketch import Population, population

LONGEST_SHARE = 512
"""Elements of a row that one thread goes over at most, unless a whole block shares the row."""
LARGEST_BLOCK = 256
"""Threads of a block, at most."""
MOST_ROUNDS = 4
"""Vectors of a thread, at most, for which threads are made to fit the row."""
RANKS = (2, 4, 8)
"""Blocks of a cluster that may share a row."""
FEW_ROWS = 512
"""Rows that are shared at most: more of them keep all processors busy anyway."""
LOADS_AT_ONCE = 8
"""Loads of a thread that are under way together."""


def gpu_row_holes(r: GpuRows, target: GpuTarget, threads: int) -> Population:
    """Shares of rows that registers hold, or that are short enough to go over again."""
    rows, last = elements(r.rows), r.elements[-1].extent
    size = max(s.stage.dtype.itemsize for s in r.stages)
    found: list[tuple[int, ...]] = []
    for width in (1, 2, 4, 8):
        if last % width or width * size > VECTOR_BYTES:
            continue
        for lanes, count in _threads(-(-r.length // width)):
            share = elements_of_thread(r.length, lanes, width)
            halved = lanes > 4 and 2 * count // lanes <= rows
            idle = halved and lanes * width >= 2 * r.length
            long = share > LONGEST_SHARE and lanes < LARGEST_BLOCK
            if count // lanes > rows or idle or long or _crowded(r, share):
                continue
            found.append((lanes, width, count, NEVER, 1))
            if lanes < LARGEST_BLOCK or lanes != count:
                continue
            for ranks in RANKS:
                part = elements_of_thread(r.length, lanes * ranks, width)
                useful = share >= ranks * width and rows <= FEW_ROWS and not _crowded(r, part)
                if useful and ranks <= target.cluster_limit:
                    found.append((lanes, width, count, NEVER, ranks))
    return population(("lanes", "width", "threads", "trigger", "ranks"), found)


def _threads(vectors: int) -> Iterator[tuple[int, int]]:
    """Threads of a row of so many vectors, and of a block: powers of two, and the fewest whole
    warps that have as many rounds.

    192 vectors   ->   256 threads, or 192, of one vector each; 128, or 96, of two; ...
    """
    powers = [4 << n for n in range(7)]
    for lanes in powers:
        yield from ((lanes, count) for count in powers if count >= max(lanes, WARP))
    rounds = range(1, MOST_ROUNDS + 1)
    for lanes in sorted({-(-vectors // (n * WARP)) * WARP for n in rounds} - set(powers)):
        yield from ((lanes, lanes * n) for n in (1, 2) if lanes * n <= LARGEST_BLOCK)


def _crowded(r: GpuRows, share: int) -> bool:
    """Whether registers do not hold all that would be kept in them."""
    return share <= KEPT_LIMIT and share * lines_kept(r) > REGISTERS and share > 1


def gpu_row_costs(r: GpuRows, target: GpuTarget, threads: int, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    lanes, width, per_block = holes["lanes"], holes["width"], holes["threads"]
    ranks = holes["ranks"]
    blocks = np.ceil(elements(r.rows) * lanes / per_block) * ranks
    share = -(-r.length // (lanes * ranks * width)) * width
    keeps = share <= KEPT_LIMIT
    once, again = row_operations(r)
    instructions = THREAD_OVERHEAD + share * np.where(keeps, once, again)
    lines, nbytes = np.zeros(len(lanes)), np.full(len(lanes), nbytes_of(r.task.outputs))
    passes = np.zeros(len(lanes))
    loads = {int(n): loads_of(r, int(n)) for n in np.unique(share)}
    late, some = np.zeros(len(lanes)), np.zeros(len(lanes), bool)
    for read, times in _reads(r).items():
        step = lane_step(read, r.elements[-1])
        vectors = share / np.where(step == 1, width, 1)
        held = np.array([read in loads[int(n)] for n in share], bool)
        often = np.where(held, 1, times)
        instructions = instructions + often * vectors
        lines += often * vectors * lines_of(read, step, width, width)
        nbytes += often * touched_bytes(read) * wasted(read, r.elements[-1], ())
        passes += often * vectors
        late, some = np.maximum(late, np.where(held, 0, times)), some | held
    # What stages load themselves waits for the stages before them.
    rounds = np.maximum(np.ceil(passes / LOADS_AT_ONCE), np.maximum(late + some, 1)) - 1
    work = Work(blocks, per_block, instructions, lines, nbytes, rounds)
    ns = kernel_ns(work, holes["trigger"] == AT_END, target)
    reduces = sum(len(s.reduces) for s in r.stages)
    meetings = reduces + 1  # and one so that nobody leaves while others read
    clustered = np.where(ranks > 1, meetings * BARRIER_NS["cluster"], 0.0)
    return np.asarray(ns + reduces * meeting_ns(lanes, target) + clustered)


def row_operations(r: GpuRows) -> tuple[float, float]:
    """Operations of an element, where lines are kept and where they are computed again."""
    once = again = 0.0
    known: dict[Expr, float] = {}
    for s in r.stages:
        values = [s.body, *(e.value for e in s.reduces)]
        own = sum(operations(e) for e in values) + len(s.reduces)
        inner = own + sum(known.get(e, 0.0) for e in subexpressions(s.body) if isinstance(e, Read))
        if s.is_line:
            known[Read(s.mark, ())] = inner
        once, again = once + own, again + inner
    return once, again


def _reads(r: GpuRows) -> dict[Read, int]:
    """Elements that are read from memory, with the number of stages that do."""
    marks = {s.mark for s in r.stages}
    found: dict[Read, int] = {}
    for s in r.stages:
        values = [s.body, *(e.value for e in s.reduces)]
        for read in {x for e in values for x in reads(e) if x.tensor not in marks}:
            found[read] = found.get(read, 0) + 1
    return found
