"""The candidates of attention with a running maximum: many rows for each tile of keys."""

from __future__ import annotations

import numpy as np

from whet.core.gpu import SHARED_ALIGNMENT, GpuTarget
from whet.core.types import Array
from whet.ir.threads import WARP
from whet.schedule.families.gpu_attention.resources import threads_of, width_of
from whet.schedule.families.gpu_attention.shared import turned_pad
from whet.schedule.families.gpu_attention.space import (
    HOLES,
    REGISTERS,
    TILES,
    WASTED,
    blocks_of,
    divides,
    only,
)
from whet.schedule.families.gpu_contraction.match import VECTOR
from whet.schedule.families.gpu_contraction.mma import SIDE
from whet.schedule.families.gpu_contraction.resources import registers_of
from whet.schedule.families.gpu_contraction.shared import MATRIX_PAD, PAD_BYTES
from whet.schedule.families.gpu_running.match import RunningAttention
from whet.schedule.program.triggers import NEVER, matrix_triggers
from whet.schedule.space.sketch import Population

ROWS = (32, 64, 128)
KEYS = (32, 64, 128)
STAGES = (2, 3)
LEAST_KEYS = 384
"""Keys from which it is offered: shorter rows are in shared memory as a whole."""
MOST_ELEMENTS = 32
"""Scores of a row that a thread holds at most."""
KEPT = 12
"""Registers of a thread beside sums, factors and scores."""


def running_holes(form: RunningAttention, target: GpuTarget) -> Population:
    """Every combination of the sizes that is legal and not mostly waste."""
    a = form.attention
    matrix = a.leaf.is_matrix
    triggers = matrix_triggers(target) if matrix else (NEVER,)
    keys = KEYS if a.length >= LEAST_KEYS else ()
    axes = (ROWS, keys, *TILES[matrix], (1,), STAGES, triggers)
    bm, bn, tm, tn, tm2, parts, stages, trigger = (
        x.reshape(-1) for x in np.meshgrid(*(np.array(x, np.int64) for x in axes), indexing="ij")
    )
    step = SIDE if matrix else VECTOR
    beside = np.maximum((bm // tm) * (bn // tn) * tm2 // bm, 1)
    tn2 = -(-a.width // (beside * step)) * step
    every = dict(zip(HOLES, (bm, bn, tm, tn, tm2, tn2, parts, stages, trigger)))
    every = only(every, divides(a, every))
    every = only(every, is_legal(form, target, every))
    return only(every, _is_sensible(form, every))


def is_legal(form: RunningAttention, target: GpuTarget, holes: Population) -> Array:
    """Which candidates the target can run."""
    a = form.attention
    bm, bn = holes["bm"], holes["bn"]
    threads, width = threads_of(a, holes), width_of(holes)
    lanes = threads // bm
    registers = registers_of_running(form, holes)
    fits = (threads % bm == 0) & (lanes <= WARP) & (lanes & (lanes - 1) == 0) & (lanes > 0)
    fits &= bn % np.maximum(lanes * VECTOR, 1) == 0
    fits &= bn <= MOST_ELEMENTS * lanes
    fits &= shared_bytes(form, holes) <= target.shared_bytes
    fits &= (registers <= REGISTERS) & (registers * threads <= target.registers_per_processor)
    fits &= width >= a.width
    fits &= holes["stages"] <= steps_of(form, holes)
    return np.asarray(fits & (blocks_of(a, holes) < 1 << 31))


def _is_sensible(form: RunningAttention, holes: Population) -> Array:
    """Which candidates do not compute mostly columns that there are not, where there are others."""
    width, wanted = width_of(holes), form.attention.width
    least = width.min(initial=np.iinfo(np.int64).max)
    return np.asarray(((width - wanted) * WASTED <= wanted) | (width == least))


def steps_of(form: RunningAttention, holes: Population) -> Array:
    """Tiles of keys."""
    return np.asarray(-(-form.attention.length // holes["bn"]))


def registers_of_running(form: RunningAttention, holes: Population) -> Array:
    """Registers of a thread, about: results are there while scores are summed up."""
    a = form.attention
    size = a.score_type.itemsize
    results = {**holes, "tm": holes["tm2"], "tn": holes["tn2"]}
    kept = holes["tm2"] * holes["tn2"] // a.leaf.lanes * size // 4
    elements = holes["bn"] * holes["bm"] // threads_of(a, holes)
    scores = np.maximum(registers_of(a.leaf, size, holes), elements + KEPT)
    return np.asarray(np.maximum(registers_of(a.leaf, size, results), kept + scores))


def shared_bytes(form: RunningAttention, holes: Population) -> Array:
    """Shared memory of a block."""
    a = form.attention
    bm, bn, width = holes["bm"], holes["bn"], width_of(holes)
    slots, depth = np.minimum(holes["stages"], steps_of(form, holes)), a.padded_depth
    keys, values = a.keys.dtype, a.values.dtype
    if a.turned_keys:
        key_bytes = depth * (bn * keys.itemsize + turned_pad(a.leaf, keys))
    else:
        key_bytes = bn * (depth * keys.itemsize + PAD_BYTES)
    buffers = [
        bm * (depth * a.queries.dtype.itemsize + PAD_BYTES),
        slots * key_bytes,
        slots * bn * (width * values.itemsize + turned_pad(a.leaf, values)),
        *(bm * (bn * dtype.itemsize + PAD_BYTES) for dtype in {a.score_type, a.weight.dtype}),
        bm * 4,
    ]
    if a.leaf.is_matrix:
        buffers.append(bm * (width + MATRIX_PAD) * a.second.reduce.dtype.itemsize)
    total = sum(-(-nbytes // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for nbytes in buffers)
    return np.asarray(total)
