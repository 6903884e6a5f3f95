"""What a row schedule should cost, for a whole population at once.

A row goes through all stages one after the other; a reduction keeps several vectors in flight and
combines them at its end, which is what short rows spend their time on.
"""

from __future__ import annotations

import math

import numpy as np

from whet.core.target import Target
from whet.core.types import Array
from whet.ir.affine import free_symbols
from whet.ir.expr import Axis, Expr, Reduce
from whet.ir.tensor import Compute, subexpressions
from whet.schedule.access import flatten_accesses
from whet.schedule.rates import Rates, rates_of
from whet.schedule.rows import Rows, lane_axis
from whet.schedule.work import (
    elements,
    halvings,
    lane_step,
    operations,
    reads,
    shared_out,
    traffic_cycles,
    with_weights,
)

ROW_CYCLES = 10.0
"""Loops and addresses around a row."""
STAGE_CYCLES = 5.0
SHUFFLE_CYCLES = 4.0
"""One halving of a vector to combine its lanes."""


def row_holes(r: Rows, target: Target, threads: int) -> dict[str, Array]:
    """Full vectors, several of them in flight, and shares from all rows down to one."""
    lanes = max(1, target.vector_bits // 32)
    shares = halvings(math.prod(r.row_shape)) if threads > 1 else [math.prod(r.row_shape)]
    table = [(lanes, vectors, share) for vectors in (4, 8, 2, 1) for share in shares]
    names = ("lanes", "vectors", "rows_per_step")
    return dict(zip(names, np.array(table, dtype=np.int64).T))


def row_costs(r: Rows, target: Target, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    rows = math.prod(r.row_shape)
    steps = -(-rows // holes["rows_per_step"])
    per_row = np.full(len(steps), ROW_CYCLES)
    rates = rates_of(target)
    for stage in r.stages:
        per_row = per_row + stage_cycles(r, stage, rates, holes["lanes"], holes["vectors"])
    moving = [t for t in (*r.task.inputs, *r.task.outputs) if t not in r.task.constants]
    cycles = np.maximum(steps * holes["rows_per_step"] * per_row, traffic_cycles(moving, target))
    weights = sum(t.type.nbytes for t in r.task.constants)
    return with_weights(shared_out(cycles, steps, threads, target), weights, target, threads)


def stage_cycles(r: Rows, stage: Compute, rates: Rates, lanes: Array, vectors: Array) -> Array:
    """Cycles that one row of a stage takes."""
    body = flatten_accesses(stage, r.task)
    cycles = np.full(len(lanes), STAGE_CYCLES)
    reduces = [e for e in subexpressions(body) if isinstance(e, Reduce)]
    inner = [a for a in stage.axes[r.row_rank :] if a.extent > 1]
    if not inner:
        # One number: what is not reduced waits for one operation after the other.
        cycles = cycles + rates.latency * operations(body)
        for reduce in reduces:
            cycles = cycles + _reduction_cycles(reduce, rates, lanes, vectors)
        return cycles
    axis = max(inner, key=lambda a: _contiguous(body, a))
    times = elements(inner) / axis.extent
    return cycles + times * _run_cycles(body, axis, rates, lanes, vectors, extra=0.0, chain=0.0)


def _reduction_cycles(reduce: Reduce, rates: Rates, lanes: Array, vectors: Array) -> Array:
    axes = [a for a in reduce.axes if a.extent > 1]
    if not axes:
        return np.zeros(len(lanes))
    axis = lane_axis(reduce.value, axes)
    times = elements(axes) / axis.extent
    latency = rates.latency
    run = _run_cycles(reduce.value, axis, rates, lanes, vectors, extra=1.0, chain=latency)
    used = np.minimum(lanes, axis.extent)
    across = latency * np.log2(vectors) + SHUFFLE_CYCLES * np.log2(np.maximum(1, used))
    return times * run + across + latency


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
    used = np.minimum(lanes, 1 << (axis.extent.bit_length() - 1))
    passes = rates.passes(used, value.dtype.bits)
    load_passes = rates.load_passes(used, value.dtype.bits)
    work = (operations(value) + extra) * passes
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
