"""Writing by index tensors.

The result is a copy of x in which the updates have been written in row-major order, each
replacing what it meets or combined with it.  Half precision is combined in f32 and rounded
once at the end.  Which element is written depends on data, so these are loop programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from whet.core.dtypes import NUMERIC, DType, compute_dtype, dtype_of, f32, i64
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, Var, all_of, as_expr, call, cast, const, select
from whet.ir.program import Allocate, Buffer, Loop, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import Domain, NoAlgebra, Op, Sample, operator, require
from whet.ops.gather import checked, require_elements, require_indices, wrapped
from whet.ops.movement import random_shape

Reduction = Literal["none", "add", "mul", "max", "min"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "add", "mul", "max", "min")

_NUMPY_UPDATE: dict[Reduction, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _combined(old: Expr, new: Expr, reduction: Reduction) -> Expr:
    match reduction:
        case "none":
            return new
        case "add":
            return old + new
        case "mul":
            return old * new
        case "max" | "min":
            return call(reduction, old, new)


def _write(x: Array, at: tuple[Array, ...], updates: Array, reduction: Reduction) -> Array:
    """A copy of x with the updates at these positions, later ones after earlier ones."""
    if reduction == "none":
        out = x.copy()
        out[at] = updates
        return out
    wide = compute_dtype(dtype_of(x)).numpy
    out = x.astype(wide)
    _NUMPY_UPDATE[reduction].at(out, at, updates.astype(wide))
    return out.astype(x.dtype)


def _require_values(
    op: Op, x: TensorType, updates: TensorType, shape: Sequence[int], reduction: Reduction
) -> None:
    require(updates.shape == tuple(shape), op, f"updates must have shape {list(shape)}", x, updates)
    require(updates.dtype == x.dtype, op, "element types differ", x, updates, code="WH1103")
    require(reduction == "none" or x.dtype in NUMERIC, op,
            f"no {reduction} of {x.dtype}", x, updates, code="WH1103")  # fmt: skip


def _loops(shape: Sequence[int], body: Callable[[tuple[Var, ...]], Stmt], name: str) -> Stmt:
    """Nested loops over the shape around the statement that `body` gives for an index."""
    index = tuple(Var(f"{name}{n}") for n in range(len(shape)))
    stmt = body(index)
    for var, extent in reversed(list(zip(index, shape))):
        stmt = Loop(var, as_expr(extent), (stmt,))
    return stmt


def _program(
    op: Op,
    types: tuple[TensorType, ...],
    reduction: Reduction,
    place: Callable[[Buffer, tuple[Var, ...]], tuple[Expr, ...]],
) -> Program:
    """Copy x, then write every update to `place(indices, its position)`."""
    x, indices, updates = (
        Buffer(name, t.shape, t.dtype) for name, t in zip(("x", "indices", "updates"), types)
    )
    out = Buffer("out", x.shape, x.dtype)
    wide = x.dtype if reduction == "none" else compute_dtype(x.dtype)
    work = out if wide == x.dtype else Buffer("work", x.shape, wide)

    def write(j: tuple[Var, ...]) -> Stmt:
        at = place(indices, j)
        return Store(work, at, _combined(work[at], cast(updates[j], wide), reduction))

    body: tuple[Stmt, ...] = (
        _loops(x.shape, lambda i: Store(work, i, cast(x[i], wide)), "i"),
        _loops(updates.shape, write, "j"),
    )
    if work is not out:
        last = _loops(x.shape, lambda i: Store(out, i, cast(work[i], x.dtype)), "i")
        body = (Allocate(work, (*body, last)),)
    return Program(op.name, (x, indices, updates), (out,), body)


@operator("scatter_elements", "x", "indices", "updates")
class ScatterElements(Op):
    """Each update goes to its own position but for `axis`, which its index names."""

    axis: int
    reduction: Reduction = "none"

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        require_elements(self, x, indices, self.axis)
        _require_values(self, x, updates, indices.shape, self.reduction)
        return x

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        at: list[Array] = list(np.indices(indices.shape, sparse=True))
        at[self.axis] = checked(self, indices, x.shape[self.axis])
        return _write(x, tuple(at), updates, self.reduction)

    def program(self, x: TensorType, indices: TensorType, updates: TensorType) -> Program:
        def place(source: Buffer, j: tuple[Var, ...]) -> tuple[Expr, ...]:
            at = wrapped(source[j], x.shape[self.axis])
            return (*j[: self.axis], at, *j[self.axis + 1 :])

        return _program(self, (x, indices, updates), self.reduction, place)

    axioms = NoAlgebra("which elements are written depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        types = (TensorType((3, 4), f32), TensorType((2, 3), i64), TensorType((2, 3), f32))
        return tuple(Sample(cls(1, r), types, (None, Domain(-4, 4), None)) for r in REDUCTIONS)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 1, 3)
        axis = int(rng.integers(len(shape)))
        own = tuple(int(rng.integers(1, (4 if n == axis else d) + 1)) for n, d in enumerate(shape))
        dtype = _random_dtype(rng)
        types = (TensorType(shape, dtype), TensorType(own, i64), TensorType(own, dtype))
        op = cls(axis, REDUCTIONS[int(rng.integers(len(REDUCTIONS)))])
        return Sample(op, types, (None, Domain(-shape[axis], shape[axis]), None))


@operator("scatter_nd", "x", "indices", "updates")
class ScatterNd(Op):
    """The last axis of `indices` names a place in x, which receives a slice of the updates."""

    reduction: Reduction = "none"

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        require_indices(self, indices)
        require(indices.rank >= 1 and indices.shape[-1] <= x.rank, self,
                "the indices name more axes than there are", x, indices)  # fmt: skip
        slices = (*indices.shape[:-1], *x.shape[indices.shape[-1] :])
        _require_values(self, x, updates, slices, self.reduction)
        return x

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        at = tuple(checked(self, indices[..., n], x.shape[n]) for n in range(indices.shape[-1]))
        if not at:
            at = (np.zeros(indices.shape[:-1], np.int64),)
            return _write(x[np.newaxis], at, updates, self.reduction)[0]
        return _write(x, at, updates, self.reduction)

    def program(self, x: TensorType, indices: TensorType, updates: TensorType) -> Program:
        named, lead = indices.shape[-1], indices.rank - 1

        def place(source: Buffer, j: tuple[Var, ...]) -> tuple[Expr, ...]:
            at = [wrapped(source[(*j[:lead], n)], x.shape[n]) for n in range(named)]
            return (*at, *j[lead:])

        return _program(self, (x, indices, updates), self.reduction, place)

    axioms = NoAlgebra("which elements are written depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        types = (TensorType((4, 3), f32), TensorType((3, 1), i64), TensorType((3, 3), f32))
        return tuple(Sample(cls(r), types, (None, Domain(-4, 4), None)) for r in REDUCTIONS)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 1, 3)
        named = int(rng.integers(1, len(shape) + 1))
        lead = random_shape(rng, 1, 1)
        low, dtype = min(shape[:named]), _random_dtype(rng)
        types = (
            TensorType(shape, dtype),
            TensorType((*lead, named), i64),
            TensorType((*lead, *shape[named:]), dtype),
        )
        op = cls(REDUCTIONS[int(rng.integers(len(REDUCTIONS)))])
        return Sample(op, types, (None, Domain(-low, low), None))


def _random_dtype(rng: np.random.Generator) -> DType:
    return NUMERIC[int(rng.integers(len(NUMERIC)))]


@operator("tensor_scatter", "x", "update", "starts")
class TensorScatter(Op):
    """A cache with new entries: batch b of `update` goes along `axis` from starts[b] on.

    A circular cache goes on from its front when it reaches its end; in a linear one the
    update must fit.  The first axis is the batch.
    """

    axis: int
    circular: bool = False

    def infer(self, x: TensorType, update: TensorType, starts: TensorType) -> TensorType:
        require_indices(self, starts)
        require(0 < self.axis < x.rank, self, f"axis {self.axis} is outside the rank", x,
                code="WH1104")  # fmt: skip
        require(update.dtype == x.dtype, self, "element types differ", x, update, code="WH1103")
        fits = update.rank == x.rank and all(
            a <= b if n == self.axis else a == b
            for n, (a, b) in enumerate(zip(update.shape, x.shape))
        )
        require(fits and starts.shape == x.shape[:1], self, "shapes do not fit", x, update, starts)
        return x

    def reference(self, x: Array, update: Array, starts: Array) -> Array:
        out = x.copy()
        extent, length = x.shape[self.axis], update.shape[self.axis]
        for batch, start in enumerate(starts):
            at = int(start) + np.arange(length)
            at = at % extent if self.circular else checked(self, at, extent)
            entry = np.moveaxis(out[batch], self.axis - 1, 0)
            entry[at] = np.moveaxis(update[batch], self.axis - 1, 0)
        return out

    def compute(self, x: Tensor, update: Tensor, starts: Tensor) -> Compute:
        extent, length = x.shape[self.axis], update.shape[self.axis]

        def body(*i: Expr) -> Expr:
            entry = i[self.axis] - cast(starts[i[0]], i64)
            if self.circular:
                entry = entry % extent
            written = all_of([const(0, i64) <= entry, entry < length])
            return select(written, update[(*i[: self.axis], entry, *i[self.axis + 1 :])], x[i])

        return compute(x.shape, body, "tensor_scatter")

    axioms = NoAlgebra("which elements are written depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        types = (TensorType((2, 5, 3), f32), TensorType((2, 2, 3), f32), TensorType((2,), i64))
        return (
            Sample(cls(1), types, (None, None, Domain(0, 4))),
            Sample(cls(1, True), types, (None, None, Domain(0, 5))),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 2, 4)
        axis = int(rng.integers(1, len(shape)))
        length, circular = int(rng.integers(1, shape[axis] + 1)), bool(rng.integers(2))
        types = (
            TensorType(shape, f32),
            TensorType((*shape[:axis], length, *shape[axis + 1 :]), f32),
            TensorType(shape[:1], i64),
        )
        high = shape[axis] if circular else shape[axis] - length + 1
        return Sample(cls(axis, circular), types, (None, None, Domain(0, high)))
