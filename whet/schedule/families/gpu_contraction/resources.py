"""What a block of a candidate takes of a processor, for whole populations."""

from __future__ import annotations

import numpy as np

from whet.core.types import Array
from whet.ir.threads import WARP
from whet.schedule.families.gpu_contraction.match import VECTOR, GpuContraction, Leaf
from whet.schedule.families.gpu_contraction.shared import MATRIX_PAD, PAD_BYTES
from whet.schedule.space.sketch import Population


def threads_of(leaf: Leaf, holes: Population) -> Array:
    """Threads of a block."""
    return (holes["bm"] // holes["tm"]) * (holes["bn"] // holes["tn"]) * leaf.lanes


def registers_of(leaf: Leaf, itemsize: int, holes: Population) -> Array:
    """Registers of a thread for sums of so many bytes, about: within 10 % of what the compiler
    took for measured kernels."""
    tm, tn = holes["tm"], holes["tn"]
    if leaf.is_matrix:
        return 5 * tm * tn // (4 * WARP) + (tm + tn) // 2 * leaf.products + 24
    return itemsize // 4 * (5 * tm * tn // 4 + VECTOR * tm + tn) + 40


def shared_bytes(form: GpuContraction, holes: Population) -> Array:
    """Shared memory of a block: sums take the place of the ring."""
    bm, bn, bk = holes["bm"], holes["bn"], holes["bk"]
    a, b = form.a.dtype.itemsize, form.b.dtype.itemsize
    matrix = form.leaf.is_matrix
    right = bn * (bk * b + PAD_BYTES) if matrix else bk * bn * b
    ring = holes["stages"] * (bm * (bk * a + PAD_BYTES) + right)
    sums = bm * (bn + MATRIX_PAD * matrix) * form.dtype.itemsize
    shared = (holes["splits"] > 1) | matrix
    return np.maximum(ring, np.where(shared, sums, 0))
