"""Results of moving data as strides over the memory of what is moved."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from whet.core.errors import OperatorError
from whet.core.types import Array, Shape, TensorType
from whet.graph.graph import Node, Result, Value
from whet.ir.affine import affine
from whet.ir.expr import Binary, Const, Expr, Read, Select
from whet.ops.base import Op
from whet.tasks.places import Place
from whet.tasks.structure import KNOWN, Structure


def view(node: Node, position: int, place: Place, result: Value) -> Place | None:
    """The result as strides over the memory of the input, or None if it is none.

    The operator itself is run on an array that holds each element's address: what comes out
    is a view exactly when addresses grow linearly along every axis.
    """
    types = tuple(v.tensor_type for v in node.inputs)
    assert isinstance(result, Result)
    found = _viewed(node.op, types, position, place.strides, place.offset, result.index)
    return None if found is None else Place(place.storage, *found)


@lru_cache(maxsize=KNOWN)
def _viewed(
    op: Op, types: tuple[TensorType, ...], position: int, strides: Shape, offset: int, index: int
) -> tuple[Shape, int] | None:
    """Strides and offset of a result of the operator, the same wherever it is applied."""
    addresses = addresses_of(types[position].shape, strides, offset)
    arrays = tuple(
        addresses if n == position else np.zeros(t.shape, t.dtype.numpy)
        for n, t in enumerate(types)
    )
    try:
        moved = op.run_reference(arrays)[index]
    except OperatorError:  # it cannot move integers
        return None
    if moved.size == 0 or moved.dtype != np.int64:  # empty, or read as another type
        return None
    return strides_over(moved)


def addresses_of(shape: Shape, strides: Shape, offset: int) -> Array:
    """The address of every element."""
    total = np.full((1,) * len(shape), offset, np.int64)
    for axis, (extent, stride) in enumerate(zip(shape, strides)):
        steps = np.arange(extent, dtype=np.int64) * stride
        total = total + steps.reshape((-1,) + (1,) * (len(shape) - 1 - axis))
    return np.broadcast_to(total, shape)


def strides_over(moved: Array) -> tuple[Shape, int] | None:
    """The strides and the offset of which these are the addresses, if they are linear in the
    position."""
    origin = int(moved[(0,) * moved.ndim])
    strides = []
    expected: Array = np.full((1,) * moved.ndim, origin, np.int64)
    for axis, extent in enumerate(moved.shape):
        at = tuple(1 if n == axis else 0 for n in range(moved.ndim))
        stride = int(moved[at]) - origin if extent > 1 else 0
        strides.append(stride)
        steps = np.arange(extent, dtype=np.int64) * stride
        expected = expected + steps.reshape((-1,) + (1,) * (moved.ndim - 1 - axis))
    if not np.array_equal(moved, np.broadcast_to(expected, moved.shape)):
        return None
    return tuple(strides), origin


def joined_parts(s: Structure) -> tuple[int, list[int]] | None:
    """Axis and starts when the operator puts its inputs one after the other.

    select(j < 3, x0[i, j], select(j < 5, x1[i, j - 3], x2[i, j - 5]))   ->   1, [0, 3, 5]
    """
    if len(s.computes) != 1 or len(s.inputs) < 2:
        return None
    stage = s.computes[0]
    leaves: dict[object, int] = {}
    axes: set[int] = set()

    def walk(e: Expr) -> bool:
        if isinstance(e, Select):
            c = e.condition
            ok = isinstance(c, Binary) and c.op == "lt" and isinstance(c.right, Const)
            if not ok or not isinstance(c, Binary) or c.left not in stage.axes:
                return False
            axes.add(stage.axes.index(c.left))
            return walk(e.then) and walk(e.other)
        if not isinstance(e, Read) or e.tensor in leaves or len(e.indices) != len(stage.axes):
            return False
        start = 0
        for number, (index, axis) in enumerate(zip(e.indices, stage.axes)):
            form = affine(index)
            if form.terms != ((axis, 1),) and axis.extent > 1:
                return False
            if form.constant:
                axes.add(number)
                start = -form.constant
        leaves[e.tensor] = start
        return True

    if not walk(stage.body) or len(axes) != 1 or set(leaves) != set(s.inputs):
        return None
    (axis,) = axes
    starts = [leaves[p] for p in s.inputs]
    ends = [start + p.shape[axis] for start, p in zip(starts, s.inputs)]
    order = sorted(range(len(starts)), key=lambda n: starts[n])
    covered = all(ends[a] == starts[b] for a, b in pairwise(order))
    whole = starts[order[0]] == 0 and ends[order[-1]] == stage.shape[axis]
    return (axis, starts) if covered and whole else None
