"""Shared memory of a block: queries, rings of keys and values, scores and weights, results."""

from __future__ import annotations

from whet.core.dtypes import DType
from whet.core.types import Shape
from whet.schedule.families.gpu_attention.match import AttentionTiling, GpuAttention
from whet.schedule.families.gpu_contraction.match import Leaf
from whet.schedule.families.gpu_contraction.shared import MATRIX_PAD, PAD_BYTES

TURNED_BYTES = 32
"""What is left free behind rows of 32 bits that lanes of matrices read down the columns: four
rows of eight numbers then lie in all banks."""


def turned_pad(leaf: Leaf, dtype: DType) -> int:
    """Bytes left free behind rows along the columns of a product."""
    if not leaf.is_matrix:
        return 0
    return TURNED_BYTES if dtype.itemsize == 4 else PAD_BYTES


def query_shape(form: GpuAttention, t: AttentionTiling) -> Shape:
    """A slot, rows, depth."""
    return 1, t.bm, form.padded_depth + PAD_BYTES // form.queries.dtype.itemsize


def key_shape(form: GpuAttention, t: AttentionTiling) -> Shape:
    """Slots, keys, depth; or slots, depth, keys."""
    dtype = form.keys.dtype
    if form.turned_keys:
        pad = turned_pad(form.leaf, dtype) // dtype.itemsize
        return form.slots(t), form.padded_depth, t.bn + pad
    return form.slots(t), t.bn, form.padded_depth + PAD_BYTES // dtype.itemsize


def value_shape(form: GpuAttention, t: AttentionTiling) -> Shape:
    """Slots, keys, columns of results."""
    dtype = form.values.dtype
    pad = turned_pad(form.leaf, dtype) // dtype.itemsize
    return form.slots(t), t.bn, form.result_span(t).size + pad


def row_shape(form: GpuAttention, t: AttentionTiling, dtype: DType) -> Shape:
    """A slot, rows, a number for every key."""
    return 1, t.bm, form.steps(t) * t.bn + PAD_BYTES // dtype.itemsize


def sums_shape(form: GpuAttention, t: AttentionTiling) -> Shape:
    """Parts of the keys, rows, columns of results."""
    return t.parts, t.bm, form.result_span(t).size + MATRIX_PAD
