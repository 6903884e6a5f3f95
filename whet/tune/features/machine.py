"""The demands of a statement on the machine: instructions, chains, traffic of every cache.

Ansor's features leave it to the model to find out what a cache does; these say it.  A level whose
footprint fits a cache stays there: what leaves the cache is its footprint once per entry, not
counting loops around it along which the access stands still (reference 6.5).
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.program import LoopKind
from whet.schedule.cost.numbers.caches import WAY_BYTES
from whet.schedule.cost.rates import rates_of
from whet.schedule.space.statements import MARKS, OPERATION_SLOTS, Statement
from whet.tune.features.columns import Columns
from whet.tune.features.geometry import Geometry, Touched


def add_machine(
    to: Columns, s: Statement, g: Geometry, target: CpuTarget, threads: int, draft: Array
) -> Array:
    """Adds the columns; the nanoseconds that the statement needs at the very least."""
    rates = rates_of(target)
    lanes = _along(s, g, "vector")
    bits = s.accesses[-1].element_bytes * 8
    work = sum(OPERATION_SLOTS.get(kind, 1.0) * n for kind, n in s.operations.items())
    passes = rates.passes(lanes, bits)
    issued = g.total / lanes * passes * max(work, 0.25)
    loads, stores, gathered = _instructions(s, g, lanes, passes)
    chains, tile = _chains(s, g, lanes)
    waiting = _steps(s, g) * rates.latency if any(s.reduces) else np.zeros_like(issued)
    compute, moving = issued / rates.operations, (loads + stores) / rates.loads
    bound = np.maximum(np.maximum(compute, moving), waiting)
    share = threads / np.minimum(threads, np.maximum(_along(s, g, "parallel"), 1.0))
    to.size("vector operations", issued)
    to.size("load instructions", loads)
    to.size("store instructions", stores)
    to.ratio("loads per operation", loads, issued)
    to.ratio("stores per operation", stores, issued)
    to.size("gathered", gathered)
    to.size("chains", chains)
    to.size("tile", tile)
    to.ratio("waiting", waiting, compute)
    to.size("code copies", s.unroll * len(s.accesses))
    to.size("trips", _innermost_trips(s, g))
    to.ratio("waste", g.total, _useful(s, g))
    to.size("crowd", _crowd(g))
    to.size("pages", _pages(g, 4096.0))
    slowest = bound
    capacities = (target.l1d_bytes, target.l2_bytes, target.l3_bytes)
    speeds = (rates.l2_bytes, rates.l3_bytes, rates.copied_bytes)
    for number, (capacity, speed) in enumerate(zip(capacities, speeds), 1):
        moved, level = traffic(g, max(capacity, 1) * 0.75, target.line_bytes)
        to.size(f"traffic {number}", moved)
        to.ratio(f"traffic per operation {number}", moved, issued)
        to.size(f"held {number}", level)
        to.ratio(f"traffic time {number}", moved / speed, bound)
        slowest = np.maximum(slowest, moved / speed)
    least: Array = slowest * share / threads / rates.clock
    to.ratio("bound by draft", bound * share / threads / rates.clock, draft * 1e9)
    to.ratio("least by draft", least, draft * 1e9)
    to.size("least", least)
    return least


def _along(s: Statement, g: Geometry, mark: LoopKind) -> Array:
    marked: Array = s.marks == MARKS[mark]
    result: Array = np.where(marked.T, g.extents, np.float32(1)).prod(axis=0)
    return result


def _held(s: Statement) -> Array:
    """[depth, n]: the loops that code generation writes out, which share loads in registers."""
    result: Array = ((s.marks == MARKS["unroll"]) | (s.marks == MARKS["vector"])).T
    return result


def _instructions(
    s: Statement, g: Geometry, lanes: Array, passes: Array
) -> tuple[Array, Array, Array]:
    """Loads, stores and gathered elements: what the loops that are written out share counts once,
    and what does not move along the lanes is one broadcast."""
    held = _held(s)
    vector = (s.marks == MARKS["vector"]).T
    outside = np.where(held, np.float32(1), g.extents).prod(axis=0)
    loads, stores = np.zeros(lanes.shape, np.float32), np.zeros(lanes.shape, np.float32)
    gathered = np.zeros(lanes.shape, np.float32)
    for t in g.touched:
        if t.in_registers:
            continue
        moved = t.strides != 0
        copies = np.where(held & ~vector & moved, g.extents, np.float32(1)).prod(axis=0)
        step = np.where(vector, np.abs(t.strides), 0).max(axis=0, initial=0)
        each = np.where(step == 0, 1.0, np.where(step == 1, passes, lanes)).astype(np.float32)
        count = outside * copies * each
        loads = loads + count * t.reads
        stores = stores + count * t.writes
        gathered = gathered + np.where(step > 1, count, np.float32(0))
    return loads, stores, gathered


def _chains(s: Statement, g: Geometry, lanes: Array) -> tuple[Array, Array]:
    """Independent accumulators, and executions per tile."""
    spatial = np.array([not r for r in s.reduces], bool)[:, None]
    held = _held(s)
    tile = np.where(held, g.extents, np.float32(1)).prod(axis=0)
    chains = np.where(held & spatial, g.extents, np.float32(1)).prod(axis=0) / lanes
    return chains, tile


def _steps(s: Statement, g: Geometry) -> Array:
    """The number of times that an accumulator waits for its last value."""
    spatial = np.array([not r for r in s.reduces], bool)[:, None]
    result: Array = np.where(_held(s) & spatial, np.float32(1), g.extents).prod(axis=0)
    return result


def _innermost_trips(s: Statement, g: Geometry) -> Array:
    """The extent of the innermost loop that stays a loop."""
    found = np.ones(g.extents.shape[1], np.float32)
    held = _held(s)
    for n in range(g.depth):
        found = np.where(~held[n] & (g.extents[n] > 1), g.extents[n], found)
    return found


def _useful(s: Statement, g: Geometry) -> Array:
    """Executions that are not repeated by tiles that overlap at edges."""
    reduced = np.ones(g.extents.shape[1], np.float32)
    for n, reduce in enumerate(s.reduces):
        if reduce:
            reduced = reduced * g.extents[n]
    stored = next(t for t in reversed(g.touched) if t.writes)
    if stored.in_registers:
        return g.total
    return np.minimum(stored.elements[0] * reduced, g.total)


def _crowd(g: Geometry) -> Array:
    """Lines that one loop puts into the same set of the first cache, at worst."""
    worst = np.ones(g.extents.shape[1], np.float32)
    for t in g.touched:
        if t.in_registers:
            continue
        for n in range(max(0, g.depth - 6), g.depth):
            step = np.abs(t.strides[n]) * t.element_bytes
            sets = WAY_BYTES // np.gcd(np.maximum(step, 1), WAY_BYTES)
            crowd = np.where(step >= 64, g.extents[n] / np.minimum(sets, 64), 1.0)
            worst = np.maximum(worst, crowd.astype(np.float32))
    return worst


def _pages(g: Geometry, size: float) -> Array:
    """Pages that the innermost loops touch."""
    found = np.zeros(g.extents.shape[1], np.float32)
    level = max(0, g.depth - 5)
    for t in g.touched:
        if not t.in_registers:
            far = np.abs(t.strides[level:]).astype(np.float32) * t.element_bytes
            apart = np.where(far >= size, g.extents[level:], np.float32(1)).prod(axis=0)
            run = (np.where(far < size, far * (g.extents[level:] - 1), np.float32(0))).sum(axis=0)
            found = found + apart * (1.0 + run / size)
    return found


def traffic(g: Geometry, capacity: float, line: int) -> tuple[Array, Array]:
    """Bytes that move into a cache of that capacity, and executions of the level that it holds."""
    moved = np.zeros(g.extents.shape[1], np.float32)
    fits = g.line_bytes <= capacity
    held = np.full(g.extents.shape[1], g.depth)
    for n in reversed(range(g.depth)):
        held = np.where(fits[n] & (held == n + 1), n, held)
    for t in g.touched:
        if not t.in_registers:
            moved = moved + _entering(t, g, held) * line
    inner = np.take_along_axis(g.inner, held[None], axis=0)[0]
    return moved, inner


def _entering(t: Touched, g: Geometry, held: Array) -> Array:
    """Lines that enter: those of the level, as often as a loop around it moves the access."""
    lines = np.take_along_axis(t.lines, held[None], axis=0)[0]
    times = np.ones(lines.shape, np.float32)
    still = np.ones(lines.shape, bool)
    for n in reversed(range(g.depth)):
        around = n < held
        still = np.where(around & (t.strides[n] != 0) & (g.extents[n] > 1), False, still)
        times = np.where(around & ~still, times * g.extents[n], times)
    result: Array = np.maximum(lines * times, t.lines[0])
    return result
