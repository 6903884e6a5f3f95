"""What a block of a candidate takes of a processor, for whole populations."""

from __future__ import annotations

import numpy as np

from whet.core.gpu import SHARED_ALIGNMENT
from whet.core.types import Array
from whet.schedule.families.gpu_attention.match import GpuAttention, padded_width
from whet.schedule.families.gpu_attention.rows import registers_ahead, row_lanes, row_width
from whet.schedule.families.gpu_attention.shared import turned_pad
from whet.schedule.families.gpu_contraction.resources import registers_of
from whet.schedule.families.gpu_contraction.shared import MATRIX_PAD, PAD_BYTES
from whet.schedule.families.gpu_rows.loads import KEPT_LIMIT
from whet.schedule.space.sketch import Population

WIDTH_HOLES = ("bm", "bn", "tm", "tn", "tm2", "tn2", "parts")
ROW_REGISTERS = 40
"""Registers of a thread beside the elements of its row."""


def threads_of(form: GpuAttention, holes: Population) -> Array:
    """Threads of a block."""
    warps = (holes["bm"] // holes["tm"]) * (holes["bn"] // holes["tn"])
    return np.asarray(warps * form.leaf.lanes)


def width_of(holes: Population) -> Array:
    """Columns of results that a block has room for."""
    return padded_width(*(holes[n] for n in WIDTH_HOLES))


def steps_of(form: GpuAttention, holes: Population) -> Array:
    """Tiles of keys."""
    return np.asarray(-(-form.length // holes["bn"]))


def lanes_of(form: GpuAttention, holes: Population) -> Array:
    """Threads of a row."""
    return row_lanes(threads_of(form, holes), holes["bm"])


def share_of(form: GpuAttention, holes: Population) -> Array:
    """Elements of a row that one thread has at most."""
    width = row_width(form.length)
    return np.asarray(-(-form.length // (lanes_of(form, holes) * width)) * width)


def registers_of_block(form: GpuAttention, holes: Population) -> Array:
    """Registers of a thread, about: those of the product or of the row that needs most."""
    size = form.score_type.itemsize
    second = {**holes, "tm": holes["tm2"], "tn": holes["tn2"]}
    products = np.maximum(
        registers_of(form.leaf, size, holes), registers_of(form.leaf, size, second)
    )
    share = share_of(form, holes)
    lines = sum(s.is_line for s in form.rows.stages[:-1])
    kept = np.where(share <= KEPT_LIMIT, share, 1) * lines * size // 4
    lanes, which = np.unique(lanes_of(form, holes), return_inverse=True)
    ahead = np.array([registers_ahead(form, int(n)) for n in lanes], np.int64)[which]
    return np.asarray(np.maximum(products, kept + ROW_REGISTERS) + ahead)


def shared_bytes(form: GpuAttention, holes: Population) -> Array:
    """Shared memory of a block."""
    bm, bn, steps, width = holes["bm"], holes["bn"], steps_of(form, holes), width_of(holes)
    slots, depth = np.minimum(holes["stages"], steps), form.padded_depth
    keys, values = form.keys.dtype, form.values.dtype
    if form.turned_keys:
        key_bytes = depth * (bn * keys.itemsize + turned_pad(form.leaf, keys))
    else:
        key_bytes = bn * (depth * keys.itemsize + PAD_BYTES)
    rows = {form.score_type, form.weight.dtype}
    buffers = [
        bm * (depth * form.queries.dtype.itemsize + PAD_BYTES),
        slots * key_bytes,
        slots * bn * (width * values.itemsize + turned_pad(form.leaf, values)),
        *(bm * (steps * bn * dtype.itemsize + PAD_BYTES) for dtype in rows),
    ]
    if form.leaf.is_matrix:
        size = form.second.reduce.dtype.itemsize
        buffers.append(holes["parts"] * bm * (width + MATRIX_PAD) * size)
    total = sum(-(-nbytes // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for nbytes in buffers)
    return np.asarray(total)
