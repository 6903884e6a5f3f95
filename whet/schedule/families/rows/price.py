"""Prices of row schedules, for a whole population at once.

A row goes through all stages one after the other; a reduction keeps several vectors in flight and
combines them at its end.  What waits for its operands there waits while the next row is already
being worked on, as far as the core looks ahead.
"""

from __future__ import annotations

import math

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import free_symbols
from whet.ir.expr import Axis, Expr, Reduce, elements
from whet.ir.tensor import Compute, subexpressions
from whet.schedule.cost.arrival import with_weights
from whet.schedule.cost.numbers.caches import IN_FLIGHT
from whet.schedule.cost.numbers.overheads import (
    HALVING_CYCLES,
    MOST_ROWS_AHEAD,
    ROW_CYCLES,
    STAGE_CYCLES,
)
from whet.schedule.cost.rates import Rates, rates_of
from whet.schedule.cost.work import (
    halvings,
    lane_step,
    operations,
    reads,
    shared_out,
    traffic_cycles,
)
from whet.schedule.families.rows.lower import lane_axis
from whet.schedule.families.rows.match import TOGETHER_BYTES, Rows
from whet.schedule.program.access import flatten_accesses
from whet.schedule.program.loops import power_of_two_below
from whet.schedule.space.sketch import population

MOST_TOGETHER = 8


def row_holes(r: Rows, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Full vectors, several of them in flight, and shares from all rows down to one."""
    lanes = max(1, target.vector_bits // 32)
    rows = math.prod(r.row_shape)
    shares = halvings(rows) if threads > 1 else [rows]
    most = _rows_together(r)
    table = [
        (lanes, vectors, share, together)
        for vectors in (4, 8, 2, 1)
        for share in shares
        for together in sorted({1, math.gcd(share, rows, most)})
    ]
    names = ("lanes", "vectors", "rows_per_step", "together")
    return population(names, table)


def _rows_together(r: Rows) -> int:
    """Rows that may go through each stage together: a power of two, 1 for long rows or if
    there is but one stage."""
    kept = [math.prod(s.shape[r.row_rank :]) * s.dtype.itemsize for s in r.stages]
    reduced = [
        elements(e.axes) * e.value.dtype.itemsize
        for s in r.stages
        for e in subexpressions(s.body)
        if isinstance(e, Reduce)
    ]
    row = sum(kept) + max([*kept, *reduced])
    if len(r.stages) == 1 or row * 2 > TOGETHER_BYTES:
        return 1
    return min(MOST_TOGETHER, power_of_two_below(TOGETHER_BYTES // row))


def row_costs(r: Rows, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    rows = math.prod(r.row_shape)
    steps = -(-rows // holes["rows_per_step"])
    issued, waiting = np.full(len(steps), ROW_CYCLES), np.zeros(len(steps))
    rates = rates_of(target)
    for stage in r.stages:
        parts = _stage_parts(r, stage, rates, holes["lanes"], holes["vectors"])
        issued, waiting = issued + parts[0], waiting + parts[1]
    ahead = np.clip(IN_FLIGHT / (issued * rates.operations), 1.0, MOST_ROWS_AHEAD)
    together = holes["together"]
    issued = issued + np.where(together > 1, STAGE_CYCLES * len(r.stages), 0.0)
    per_row = issued + waiting / np.maximum(ahead, together)
    traffic = traffic_cycles(r.task.moving, target)
    cycles = np.maximum(steps * holes["rows_per_step"] * per_row, traffic)
    ns = shared_out(cycles, steps, threads, target)
    return with_weights(ns, r.task.constant_bytes, target, threads)


def stage_cycles(
    r: Rows, stage: Compute, rates: Rates, lanes: Array, vectors: Array, together: Array
) -> Array:
    """Cycles that one row of a stage takes when several go through it together."""
    issued, waiting = _stage_parts(r, stage, rates, lanes, vectors)
    return issued + STAGE_CYCLES + waiting / np.minimum(together, MOST_TOGETHER)


def register_cycles(
    r: Rows, stage: Compute, rates: Rates, lanes: Array, vectors: Array, rows: Array
) -> Array:
    """Cycles that a stage takes for one of some rows whose vectors are all in registers: there
    are no loops, and the rows wait together."""
    issued, waiting = _stage_parts(r, stage, rates, lanes, vectors)
    result: Array = issued - STAGE_CYCLES + waiting / rows
    return result


def _stage_parts(
    r: Rows, stage: Compute, rates: Rates, lanes: Array, vectors: Array
) -> tuple[Array, Array]:
    """Cycles in which one row of a stage keeps the core busy, and those that it waits."""
    body = flatten_accesses(stage, r.task)
    issued, waiting = np.full(len(lanes), STAGE_CYCLES), np.zeros(len(lanes))
    reduces = [e for e in subexpressions(body) if isinstance(e, Reduce)]
    inner = [a for a in stage.axes[r.row_rank :] if a.extent > 1]
    if not inner:
        # One number: what is not reduced waits for one operation after the other.
        waiting = waiting + rates.latency * operations(body)
        for reduce in reduces:
            parts = _reduction_parts(reduce, rates, lanes, vectors)
            issued, waiting = issued + parts[0], waiting + parts[1]
        return issued, waiting
    axis = max(inner, key=lambda a: _contiguous(body, a))
    times = elements(inner) / axis.extent
    run = _run_cycles(body, axis, rates, lanes, vectors, extra=0.0, chain=0.0)
    return issued + times * run, waiting


def _reduction_parts(
    reduce: Reduce, rates: Rates, lanes: Array, vectors: Array
) -> tuple[Array, Array]:
    axes = [a for a in reduce.axes if a.extent > 1]
    if not axes:
        return np.zeros(len(lanes)), np.zeros(len(lanes))
    axis = lane_axis(reduce.value, axes)
    times = elements(axes) / axis.extent
    latency = rates.latency
    issued = _run_cycles(reduce.value, axis, rates, lanes, vectors, extra=1.0, chain=0.0)
    chained = _run_cycles(reduce.value, axis, rates, lanes, vectors, extra=1.0, chain=latency)
    halvings_of_lanes = np.log2(np.maximum(1, np.minimum(lanes, axis.extent)))
    across = latency * np.log2(vectors) + HALVING_CYCLES * halvings_of_lanes
    return times * issued + halvings_of_lanes, times * (chained - issued) + across + latency


def _run_cycles(
    value: Expr,
    axis: Axis,
    rates: Rates,
    lanes: Array,
    vectors: Array,
    *,
    extra: float,
    chain: float,
) -> Array:
    """Cycles for one run along the axis, `chain` between operations on one accumulator."""
    used = np.minimum(lanes, power_of_two_below(axis.extent))
    passes = rates.passes(used, value.dtype.bits)
    load_passes = rates.load_passes(used, value.dtype.bits)
    work = (operations(value, axis) + extra) * passes
    loads = np.zeros(len(lanes))
    for read in reads(value):
        step = lane_step(read, axis)
        gathered = step is None or step > 1
        loads = loads + (used if gathered else load_passes if step == 1 else 0.1)
        work = work + (2 * used if gathered else 0.0)
    per_vector = np.maximum(work / rates.operations, loads / rates.loads)
    flying = np.maximum(1, np.minimum(vectors, axis.extent // used))
    blocks = axis.extent // (used * flying)
    rest = np.ceil(axis.extent % (used * flying) / used)
    block_cycles = np.maximum(flying * per_vector, chain) + 1.0
    result: Array = blocks * block_cycles + rest * np.maximum(per_vector, chain / flying)
    return result


def _contiguous(body: Expr, axis: Axis) -> tuple[bool, int]:
    """Whether some read is contiguous along the axis, and how long it is."""
    forms = [lane_step(read, axis) for read in reads(body) if axis in free_symbols(read)]
    return 1 in forms, axis.extent
