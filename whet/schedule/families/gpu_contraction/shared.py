"""Shared memory of a block: the rings of both operands, and the sums of its tile."""

from __future__ import annotations

from whet.core.types import Shape
from whet.schedule.families.gpu_contraction.match import GpuContraction, Tiling

PAD_BYTES = 16
"""What is left free behind rows along the depth, so that a column of them lies in all banks."""
MATRIX_PAD = 8
"""Numbers left free behind rows of sums that lanes of matrices write in pairs."""


def left_shape(form: GpuContraction, t: Tiling) -> Shape:
    """Stages, rows, depth."""
    return form.slots(t), t.bm, t.bk + PAD_BYTES // form.a.dtype.itemsize


def right_shape(form: GpuContraction, t: Tiling) -> Shape:
    """Stages, depth, columns; for matrices stages, columns, depth."""
    if form.leaf.is_matrix:
        return form.slots(t), t.bn, t.bk + PAD_BYTES // form.b.dtype.itemsize
    return form.slots(t), t.bk, t.bn


def sums_shape(form: GpuContraction, t: Tiling) -> Shape:
    """Blocks of the cluster, rows, columns."""
    return t.splits, t.bm, t.bn + (MATRIX_PAD if form.leaf.is_matrix else 0)
