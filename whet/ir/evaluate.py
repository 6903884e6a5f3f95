"""The meaning of a tensor expression: a direct evaluation with NumPy.

Every axis of a stage becomes a dimension of the arrays, and the body is evaluated on the whole
iteration domain at once.  It is slow and takes memory in proportion to the domain, which is
what a definition to test against should be: obvious.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from whet.core.conversion import convert_array
from whet.core.errors import check
from whet.core.types import Array
from whet.ir.expr import Axis, Binary, Call, Cast, Const, Expr, Read, Reduce, Reinterpret, Select
from whet.ir.functions import ARG_REDUCERS, FUNCTIONS, INFIX, REDUCERS
from whet.ir.tensor import Compute, Tensor, stages, subexpressions


def evaluate(outputs: Sequence[Tensor], inputs: Mapping[Tensor, Array]) -> tuple[Array, ...]:
    """The arrays of the outputs, given an array for each placeholder."""
    arrays = dict(inputs)
    for stage in stages(outputs):
        if isinstance(stage, Compute):
            arrays[stage] = evaluate_stage(stage, arrays)
        else:
            check(stage in arrays, "WH1203", f"no array was given for '{stage.name}'")
    return tuple(arrays[t] for t in outputs)


def evaluate_stage(stage: Compute, arrays: Mapping[Tensor, Array]) -> Array:
    """The array of one stage, given those of all tensors that it reads."""
    reduced: dict[Axis, None] = {}
    for e in subexpressions(stage.body):
        if isinstance(e, Reduce):
            reduced.update(dict.fromkeys(e.axes))
    dims = {axis: n for n, axis in enumerate((*stage.axes, *reduced))}
    with np.errstate(all="ignore"):
        value = _Evaluator(arrays, dims, _shared(stage.body)).value(stage.body, guarded=False)
    value = value.reshape(value.shape[: len(stage.axes)])
    return np.broadcast_to(value, stage.shape).astype(stage.dtype.numpy, order="C")


def _shared(body: Expr) -> set[Expr]:
    """The expressions that are used more than once: only those are worth keeping, for arrays are
    as large as the whole domain."""
    seen: set[Expr] = set()
    shared: set[Expr] = set()
    for e in subexpressions(body):
        for child in e.children():
            (shared if child in seen else seen).add(child)
    return shared


class _Evaluator:
    """Evaluates expressions to arrays whose dimension n belongs to the axis with number n."""

    def __init__(
        self, arrays: Mapping[Tensor, Array], dims: Mapping[Axis, int], shared: set[Expr]
    ) -> None:
        self.arrays, self.dims, self.shared = arrays, dims, shared
        self.memo: dict[tuple[Expr, bool], Array] = {}

    def value(self, e: Expr, *, guarded: bool) -> Array:
        key = (e, guarded)
        if e not in self.shared:
            return self._compute(e, guarded)
        if key not in self.memo:
            self.memo[key] = self._compute(e, guarded)
        return self.memo[key]

    def _compute(self, e: Expr, guarded: bool) -> Array:
        match e:
            case Const(value=value, dtype=dtype):
                return np.full((1,) * len(self.dims), value, dtype.numpy)
            case Axis(extent=extent):
                shape = [1] * len(self.dims)
                shape[self.dims[e]] = extent
                return np.arange(extent).reshape(shape)
            case Binary(op=op, left=left, right=right):
                a, b = self.value(left, guarded=guarded), self.value(right, guarded=guarded)
                return np.asarray(INFIX[op].numpy(a, b)).astype(e.dtype.numpy, copy=False)
            case Call(name=name, args=args):
                values = [self.value(a, guarded=guarded) for a in args]
                return np.asarray(FUNCTIONS[name](*values)).astype(e.dtype.numpy, copy=False)
            case Cast(value=value, dtype=dtype):
                return convert_array(self.value(value, guarded=guarded), dtype)
            case Reinterpret(value=value, dtype=dtype):
                return self.value(value, guarded=guarded).view(dtype.numpy)
            case Select(condition=condition, then=then, other=other):
                return np.where(
                    self.value(condition, guarded=guarded),
                    self.value(then, guarded=True),
                    self.value(other, guarded=True),
                )
            case Read():
                return self._read(e, guarded)
            case Reduce():
                return self._reduce(e, guarded)
        raise AssertionError(type(e))

    def _read(self, e: Read, guarded: bool) -> Array:
        array = self.arrays[e.tensor]
        if not e.indices:
            return np.asarray(array).reshape((1,) * len(self.dims))
        indices = []
        for index, extent in zip(e.indices, array.shape, strict=True):
            at = self.value(index, guarded=guarded)
            if guarded:
                at = np.clip(at, 0, max(extent - 1, 0))
            else:
                check(
                    bool(((at >= 0) & (at < extent)).all()),
                    "WH1302",
                    f"{e} leaves the extent {extent} of '{e.tensor.name}'",
                )
            indices.append(at)
        if array.size == 0:
            shape = np.broadcast_shapes(*(i.shape for i in indices))
            return np.zeros(shape, array.dtype)
        return np.asarray(array[tuple(np.broadcast_arrays(*indices))])

    def _reduce(self, e: Reduce, guarded: bool) -> Array:
        value = self.value(e.value, guarded=guarded)
        dims = tuple(self.dims[a] for a in e.axes)
        shape = list(value.shape)
        for axis, dim in zip(e.axes, dims):
            shape[dim] = axis.extent
        value = np.broadcast_to(value, shape)
        if e.kind in ARG_REDUCERS:
            moved = np.moveaxis(value, dims, range(-len(dims), 0))
            kept = moved.shape[: -len(dims)]
            flat = moved.reshape(*kept, math.prod(moved.shape[-len(dims) :]))
            position = ARG_REDUCERS[e.kind](flat, axis=-1)
            return np.expand_dims(position, tuple(sorted(dims))).astype(np.int64)
        reducer = REDUCERS[e.kind]
        return np.asarray(reducer.reduce(value, axis=dims, keepdims=True, dtype=value.dtype))
