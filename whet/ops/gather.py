"""Reading by index tensors.

Indices are i32 or i64 and may be negative: -1 is the last position, as in Python.
"""

from __future__ import annotations

import math

import numpy as np

from whet.core.dtypes import f32, i32, i64
from whet.core.errors import OperatorError, fail
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, cast, equal, select
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import Domain, NoAlgebra, Op, Sample, law, operator, require
from whet.ops.movement import random_shape

INDEX_TYPES = (i32, i64)


def wrapped(index: Expr, extent: int) -> Expr:
    """The index as i64, counted from the front."""
    index = cast(index, i64)
    return select(index < 0, index + extent, index)


def checked(op: Op, indices: Array, extent: int) -> Array:
    """The indices counted from the front; `WH1302` if one lies outside the extent."""
    outside = (indices < -extent) | (indices >= extent)
    if outside.any():
        fail("WH1302", f"{op.name}: the index {indices[outside].flat[0]} is outside "
             f"[{-extent}, {extent})", kind=OperatorError)  # fmt: skip
    return np.where(indices < 0, indices + extent, indices).astype(np.int64)


@operator("gather", "x", "indices")
class Gather(Op):
    """Slices of x along `axis` at the indices, whose shape takes the place of that axis."""

    axis: int

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require(0 <= self.axis < x.rank, self, f"axis {self.axis} is outside the rank", x, indices,
                code="WH1104")  # fmt: skip
        require_indices(self, indices)
        return x.with_shape((*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :]))

    def reference(self, x: Array, indices: Array) -> Array:
        return np.take(x, checked(self, indices, x.shape[self.axis]), axis=self.axis)

    def compute(self, x: Tensor, indices: Tensor) -> Compute:
        end = self.axis + indices.rank

        def body(*i: Expr) -> Expr:
            at = wrapped(indices[i[self.axis : end]], x.shape[self.axis])
            return x[(*i[: self.axis], at, *i[end:])]

        return compute(self.infer(x.type, indices.type).shape, body, "gather")

    axioms = (
        law("gather(gather(x, i, axis=0), j, axis=0) = gather(x, gather(i, j, axis=0), axis=0)",
            "exact", x=(4, 3), i=(5,), j=(2,)),
        law("gather(gather(x, i, axis=0), j, axis=1) = gather(gather(x, j, axis=1), i, axis=0)",
            "exact", x=(4, 3), i=(5,), j=(2,)),
        law("gather(relu(x), i, axis=0) = relu(gather(x, i, axis=0))", "exact", x=(4, 3), i=(5,)),
        law("gather(add(x, y), i, axis=0) = add(gather(x, i, axis=0), gather(y, i, axis=0))",
            "exact", x=(4, 3), y=(4, 3), i=(5,)),
        law("gather(matmul(x, y), i, axis=0) = matmul(gather(x, i, axis=0), y)", "exact",
            x=(4, 3), y=(3, 2), i=(5,)),
        law("gather(matmul(x, y), i, axis=1) = matmul(x, gather(y, i, axis=1))", "exact",
            x=(4, 3), y=(3, 2), i=(5,)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(0), (TensorType((5, 3), f32), TensorType((4,), i64)), (None, Domain(-5, 5))),
            Sample(cls(1), (TensorType((2, 4, 3), f32), TensorType((2, 2), i32)),
                   (None, Domain(-4, 4))),
            Sample(cls(0), (TensorType((6,), i64), TensorType((), i64)), (None, Domain(0, 6))),
        )  # fmt: skip

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        axis = int(rng.integers(len(shape)))
        types = (TensorType(shape, f32), TensorType(random_shape(rng, 0, 2), i64))
        return Sample(cls(axis), types, (None, Domain(-shape[axis], shape[axis])))


@operator("gather_elements", "x", "indices")
class GatherElements(Op):
    """For every position of `indices`, the element of x there but for `axis`, which it names."""

    axis: int

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require_elements(self, x, indices, self.axis)
        return x.with_shape(indices.shape)

    def reference(self, x: Array, indices: Array) -> Array:
        at = checked(self, indices, x.shape[self.axis])
        reach = [slice(0, d) for d in indices.shape]
        reach[self.axis] = slice(None)
        return np.take_along_axis(x[tuple(reach)], at, axis=self.axis)

    def compute(self, x: Tensor, indices: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            at = wrapped(indices[i], x.shape[self.axis])
            return x[(*i[: self.axis], at, *i[self.axis + 1 :])]

        return compute(indices.shape, body, "gather_elements")

    axioms = NoAlgebra("which elements are read depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(1), (TensorType((3, 4), f32), TensorType((2, 5), i64)),
                   (None, Domain(-4, 4))),
            Sample(cls(0), (TensorType((4, 2), f32), TensorType((6, 2), i32)),
                   (None, Domain(0, 4))),
        )  # fmt: skip

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        axis = int(rng.integers(len(shape)))
        own = tuple(int(rng.integers(1, (8 if n == axis else d) + 1)) for n, d in enumerate(shape))
        types = (TensorType(shape, f32), TensorType(own, i64))
        return Sample(cls(axis), types, (None, Domain(-shape[axis], shape[axis])))


@operator("gather_nd", "x", "indices")
class GatherNd(Op):
    """The last axis of `indices` names a place in x; what lies there is read.

    The first `batch_dims` axes of both inputs run together; the named axes follow them, and
    the axes of x after those are copied whole.
    """

    batch_dims: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require_indices(self, indices)
        batch = self.batch_dims
        require(indices.rank >= 1 and 0 <= batch < min(x.rank + 1, indices.rank), self,
                f"batch_dims {batch} does not fit the ranks", x, indices,
                code="WH1104")  # fmt: skip
        require(x.shape[:batch] == indices.shape[:batch], self, "batch extents differ", x, indices)
        named = indices.shape[-1]
        require(batch + named <= x.rank, self, f"{named} indices exceed the rank", x, indices)
        return x.with_shape((*indices.shape[:-1], *x.shape[batch + named :]))

    def reference(self, x: Array, indices: Array) -> Array:
        batch, named = self.batch_dims, indices.shape[-1]
        shape = (*indices.shape[:-1], *x.shape[batch + named :])
        rows = math.prod(x.shape[:batch])
        source = x.reshape((rows, *x.shape[batch:]))
        places = indices.reshape((rows, math.prod(indices.shape[batch:-1]), named))
        at = tuple(checked(self, places[..., n], x.shape[batch + n]) for n in range(named))
        row = np.broadcast_to(np.arange(rows)[:, None], places.shape[:-1])
        return source[(row, *at)].reshape(shape)

    def compute(self, x: Tensor, indices: Tensor) -> Compute:
        batch, named = self.batch_dims, indices.shape[-1]
        lead = indices.rank - 1

        def body(*i: Expr) -> Expr:
            at = [wrapped(indices[(*i[:lead], n)], x.shape[batch + n]) for n in range(named)]
            return x[(*i[:batch], *at, *i[lead:])]

        return compute(self.infer(x.type, indices.type).shape, body, "gather_nd")

    axioms = NoAlgebra("which elements are read depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(), (TensorType((3, 3, 2), f32), TensorType((4, 2), i64)),
                   (None, Domain(-3, 3))),
            Sample(cls(1), (TensorType((2, 3, 4), f32), TensorType((2, 5, 1), i64)),
                   (None, Domain(0, 3))),
        )  # fmt: skip

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        batch = int(rng.integers(len(shape)))
        named = int(rng.integers(1, len(shape) - batch + 1))
        own = (*shape[:batch], *random_shape(rng, 0, 2), named)
        low = min(shape[batch : batch + named])
        types = (TensorType(shape, f32), TensorType(own, i64))
        return Sample(cls(batch), types, (None, Domain(-low, low)))


@operator("one_hot", "indices", "values")
class OneHot(Op):
    """A new axis of extent `depth`: values[1] at the index, values[0] elsewhere.

    An index outside [-depth, depth) selects nothing.  Fractions are cut off.
    """

    axis: int
    depth: int

    def infer(self, indices: TensorType, values: TensorType) -> TensorType:
        require(0 <= self.axis <= indices.rank and self.depth >= 0, self,
                f"axis {self.axis} or depth {self.depth} is out of range", indices, values,
                code="WH1104")  # fmt: skip
        require(values.shape == (2,), self, "values must hold two elements", indices, values)
        own = indices.shape
        return values.with_shape((*own[: self.axis], self.depth, *own[self.axis :]))

    def reference(self, indices: Array, values: Array) -> Array:
        whole = np.expand_dims(indices.astype(np.int64), self.axis)
        shape = [1] * whole.ndim
        shape[self.axis] = self.depth
        place = np.arange(self.depth).reshape(shape)
        return np.where((whole == place) | (whole == place - self.depth), values[1], values[0])

    def compute(self, indices: Tensor, values: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            index = wrapped(indices[(*i[: self.axis], *i[self.axis + 1 :])], self.depth)
            return select(equal(index, i[self.axis]), values[1], values[0])

        return compute(self.infer(indices.type, values.type).shape, body, "one_hot")

    axioms = (
        law("transpose(one_hot(x, v, axis=1, depth=4), perm=[1, 0]) = "
            "one_hot(x, v, axis=0, depth=4)", "exact", x=(3,), v=(2,)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(1, 4), (TensorType((5,), i64), TensorType((2,), f32)),
                   (Domain(-6, 6), None)),
            Sample(cls(0, 3), (TensorType((2, 3), i32), TensorType((2,), i64)),
                   (Domain(0, 3), None)),
        )  # fmt: skip

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 0, 3)
        op = cls(int(rng.integers(len(shape) + 1)), int(rng.integers(1, 6)))
        types = (TensorType(shape, i64), TensorType((2,), f32))
        return Sample(op, types, (Domain(-8, 8), None))


def require_indices(op: Op, indices: TensorType) -> None:
    """Raise unless the type can hold indices."""
    require(indices.dtype in INDEX_TYPES, op, "indices must be i32 or i64", indices,
            code="WH1103")  # fmt: skip


def require_elements(op: Op, x: TensorType, indices: TensorType, axis: int) -> None:
    """Raise unless every position of `indices` lies in x but for `axis`."""
    require_indices(op, indices)
    require(x.rank == indices.rank, op, "ranks differ", x, indices)
    require(0 <= axis < x.rank, op, f"axis {axis} is outside the rank", x, indices, code="WH1104")
    inside = (a <= b for n, (a, b) in enumerate(zip(indices.shape, x.shape)) if n != axis)
    require(all(inside), op, "indices reach beyond the input", x, indices)
