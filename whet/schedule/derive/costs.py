"""The analytic model of derived programs, for a whole population of a structure at once.

A statement is bound by its operations, its loads, or the chain of its sums, whichever is slowest;
loops add their branches, and every cache the bytes that come through it: what the loops touch
that fit, times how often the loops around them run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.schedule.cost.numbers.caches import L2_KEPT, SHOWN
from whet.schedule.cost.numbers.overheads import BRANCH_CYCLES
from whet.schedule.cost.rates import Rates, rates_of
from whet.schedule.cost.work import shared_out
from whet.schedule.derive.describe import described
from whet.schedule.derive.structure import LoopStructure
from whet.schedule.space.statements import MARKS, OPERATION_SLOTS, Access, Statement


def structure_costs(
    structure: LoopStructure, target: CpuTarget, threads: int, columns: Mapping[str, Array]
) -> Array:
    """Estimated nanoseconds of every row."""
    count = len(next(iter(columns.values())))
    rates = rates_of(target)
    storage = structure.state.storage
    held = {n for n, r in storage.items() if r.scope == "register"}
    cycles: dict[int, Array] = {}
    steps: dict[int, Array] = {}
    for root, statement in described(structure, columns, np.arange(count)):
        own = _cycles(statement, held, rates, target)
        cycles[root] = cycles.get(root, np.zeros(count)) + own
        shared = np.where(statement.marks == MARKS["parallel"], statement.loops, 1).prod(axis=1)
        steps[root] = np.maximum(steps.get(root, np.ones(count)), shared)
    total: Array = np.zeros(count)
    for root, own in cycles.items():
        alone = own / rates.clock
        shared = shared_out(own, steps[root], threads, target)
        total += np.where(steps[root] > 1, shared, alone)
    return total


def _cycles(s: Statement, held: set[str], rates: Rates, target: CpuTarget) -> Array:
    loops = s.loops.astype(np.float64)
    is_vector, is_unrolled = s.marks == MARKS["vector"], s.marks == MARKS["unroll"]
    lanes = np.where(is_vector, loops, 1.0).prod(axis=1)
    times = loops.prod(axis=1) / lanes
    bits = 8 * s.accesses[-1].element_bytes
    slots = sum(n * OPERATION_SLOTS.get(kind, 1.0) for kind, n in s.operations.items())
    issue = slots * rates.passes(lanes, bits) / rates.operations
    loads: Array = np.zeros(len(times))
    for access in s.accesses:
        if access.buffer not in held:
            loads += _loads(access, loops, is_vector, is_unrolled, lanes, rates, bits)
    sums = np.where(is_unrolled & ~np.array(s.reduces, bool), loops, 1.0).prod(axis=1)
    adds = any(a.buffer == s.name and not a.is_write for a in s.accesses[:-1])
    delay = rates.latency + (0.0 if s.name in held else 4.0)
    chain = delay / sums if adds else 0.0
    work = times * np.maximum(np.maximum(issue, loads / rates.loads), chain)
    counted = np.where(is_unrolled | is_vector, 1.0, loops)
    branches = BRANCH_CYCLES * np.cumprod(counted, axis=1).sum(axis=1) if s.depth else 0.0
    moved = _traffic(s, loops, held, rates, target) if s.depth else 0.0
    total: Array = work + branches + SHOWN * moved + 1.0
    return total


def _loads(
    access: Access,
    loops: Array,
    is_vector: Array,
    is_unrolled: Array,
    lanes: Array,
    rates: Rates,
    bits: int,
) -> Array:
    """Loads, or stores, per execution: a value serves all unrolled copies that do not move it."""
    strides = access.strides
    step = np.where(is_vector, strides, 0).sum(axis=1)
    one = np.where(step == 1, rates.load_passes(lanes, bits), np.where(step == 0, 1.0, lanes))
    shared = np.where(is_unrolled & (strides == 0), loops, 1.0).prod(axis=1)
    needed: Array = one / shared
    return needed


def _traffic(s: Statement, loops: Array, held: set[str], rates: Rates, target: CpuTarget) -> Array:
    """Cycles that bytes take on their way through the caches."""
    touched = [_footprints(a, loops, target) for a in s.accesses if a.buffer not in held]
    if not touched:
        return np.zeros(len(loops))
    whole = np.sum(touched, axis=0)
    # outside[:, d]: how often the loops from d inwards run as a whole.
    outside = np.cumprod(np.concatenate([np.ones((len(loops), 1)), loops], axis=1), axis=1)
    levels = ((target.l1d_bytes, rates.l2_bytes), (target.l2_bytes, rates.l3_bytes),
              (target.l3_bytes or target.l2_bytes, rates.copied_bytes))  # fmt: skip
    total: Array = np.zeros(len(loops))
    rows = np.arange(len(loops))
    for size, speed in levels:
        fits = whole <= L2_KEPT * size
        depth = np.where(fits.any(axis=1), fits.argmax(axis=1), loops.shape[1])
        for bytes_at in touched:
            total += outside[rows, depth] * bytes_at[rows, depth] / speed
    return total


def _footprints(access: Access, loops: Array, target: CpuTarget) -> Array:
    """[n, depth + 1]: bytes, in whole lines, that the loops from each one inwards touch."""
    line = target.line_bytes / access.element_bytes
    count, depth = loops.shape
    found: Array = np.full((count, depth + 1), float(target.line_bytes))
    for dim in range(access.indices.shape[2]):
        steps = access.indices[:, :, dim]
        if not steps.any():
            continue  # one position, whatever the loops do
        extents: Array = np.ones((count, depth + 1))
        for n in reversed(range(depth)):
            extents[:, n] = extents[:, n + 1] + np.abs(steps[:, n]) * (loops[:, n] - 1)
        near = (access.steps[:, dim] == 1)[:, None]
        found *= np.where(near, np.ceil(extents / line), extents) if near.any() else extents
    alone = ~(access.steps == 1).any(axis=1)
    found[alone] = np.maximum(found[alone], target.line_bytes)
    limit = np.maximum(access.buffer_bytes, target.line_bytes)[:, None]
    result: Array = np.minimum(found, limit)
    return result
