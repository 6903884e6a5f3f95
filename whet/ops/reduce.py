"""Reductions and arg-reductions along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from whet.core.dtypes import NUMERIC, DType, bool_, compute_dtype, dtype_of, f32, i64
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, call, cast, const
from whet.ir.functions import FUNCTIONS
from whet.ir.tensor import Compute, Tensor, compute, reduce, reduce_axis
from whet.ops.base import NoAlgebra, Op, Sample, law, operator, require


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """The shape with the axes gone, or of extent 1 with `keepdims`."""
    kept = ((n, d) for n, d in enumerate(shape) if keepdims or n not in axes)
    return tuple(1 if n in axes else d for n, d in kept)


@dataclass(frozen=True)
class Reduction(Op):
    """Base: combines all elements along `axes` in the type that `inner` gives."""

    axes: tuple[int, ...]
    keepdims: bool = False

    accepts: ClassVar[tuple[DType, ...]] = NUMERIC
    numpy: ClassVar[Callable[..., Any]]
    """The reduction in NumPy: (array, axis=, keepdims=) -> array."""

    def inner(self, dtype: DType) -> DType:
        """The type in which elements are combined: f32 for half precision."""
        return compute_dtype(dtype)

    def kind(self, dtype: DType) -> str:
        """The reducer that does it, in the words of `ir.functions`."""
        raise NotImplementedError

    def of_nothing(self, dtype: DType) -> float:
        """The result for no elements at all."""
        raise NotImplementedError

    def finish(self, value: Expr, count: int) -> Expr:
        """The last step, done with the combined value of `count` elements."""
        return value

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype in self.accepts, self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(sorted(set(self.axes) & set(range(x.rank))) == list(self.axes), self,
                f"axes {list(self.axes)} are not ascending axes of the input", x,
                code="WH1104")  # fmt: skip
        return x.with_shape(reduced_shape(x.shape, self.axes, self.keepdims))

    def reference(self, x: Array) -> Array:
        dtype = dtype_of(x)
        if any(x.shape[a] == 0 for a in self.axes):
            shape = reduced_shape(x.shape, self.axes, self.keepdims)
            return np.full(shape, self.of_nothing(dtype), dtype.numpy)
        if not self.axes:
            return x
        wide = x.astype(self.inner(dtype).numpy, copy=False)
        result = self.numpy(wide, axis=self.axes, keepdims=self.keepdims)
        return np.asarray(result).astype(dtype.numpy, copy=False)

    def compute(self, x: Tensor) -> Compute:
        out = self.infer(x.type)
        inner = self.inner(x.dtype)
        over = {a: reduce_axis(x.shape[a], f"k{n}") for n, a in enumerate(self.axes)}
        count = math.prod(x.shape[a] for a in self.axes)

        def body(*i: Expr) -> Expr:
            if not count:
                return const(self.of_nothing(x.dtype), out.dtype)
            if self.keepdims:
                indices = tuple(over.get(a, i[a]) for a in range(x.rank))
            else:
                own = iter(i)
                indices = tuple(over[a] if a in over else next(own) for a in range(x.rank))
            value = cast(x[indices], inner)
            combined = reduce(self.kind(inner), value, *over.values())
            return cast(self.finish(combined, count) if over else combined, out.dtype)

        return compute(out.shape, body, self.name)

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls((1,)), (TensorType((3, 5), f32),)),
            Sample(cls((0, 2), keepdims=True), (TensorType((2, 3, 4), f32),)),
            Sample(cls((0,)), (TensorType((0, 3), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        rank = int(rng.integers(1, 5))
        shape = tuple(int(d) for d in rng.integers(1, 6, rank))
        axes = tuple(a for a in range(rank) if rng.random() < 0.5)
        dtype = cls.accepts[int(rng.integers(len(cls.accepts)))]
        return Sample(cls(axes, bool(rng.integers(2))), (TensorType(shape, dtype),))


@operator("reduce_sum", "x")
class ReduceSum(Reduction):
    """The sum along the axes."""

    @staticmethod
    def numpy(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        return np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)

    def kind(self, dtype: DType) -> str:
        return "sum"

    def of_nothing(self, dtype: DType) -> float:
        return 0

    axioms = (
        law("reduce_sum(add(x, y), axes=[1]) = add(reduce_sum(x, axes=[1]), "
            "reduce_sum(y, axes=[1]))", "real", when=("shape(x) == shape(y)",),
            x=(2, 3), y=(2, 3)),
        law("reduce_sum(reduce_sum(x, axes=[2]), axes=[1]) = reduce_sum(x, axes=[1, 2])",
            "real", x=(2, 3, 4)),
        law("reduce_sum(transpose(x, perm=[1, 0]), axes=[0]) = reduce_sum(x, axes=[1])",
            "real", x=(2, 3)),
        law("reduce_sum(matmul(x, y), axes=[0], keepdims=true) = "
            "matmul(reduce_sum(x, axes=[0], keepdims=true), y)", "real", x=(2, 3), y=(3, 4)),
    )  # fmt: skip


@operator("reduce_mean", "x")
class ReduceMean(Reduction):
    """The mean along the axes; that of integers is rounded toward zero.

    Integers of at most 32 bits are added in 64, so that the mean is right; the sum of wider ones
    wraps around.
    """

    def inner(self, dtype: DType) -> DType:
        return i64 if dtype.is_integer and dtype.bits <= 32 else compute_dtype(dtype)

    @staticmethod
    def numpy(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        if x.dtype.kind == "f":
            return np.mean(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
        total = np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
        count = x.dtype.type(math.prod(x.shape[a] for a in axis))
        return np.asarray(FUNCTIONS["truncdiv"](total, count))

    def kind(self, dtype: DType) -> str:
        return "sum"

    def of_nothing(self, dtype: DType) -> float:
        return math.nan if dtype.is_float else 0

    def finish(self, value: Expr, count: int) -> Expr:
        return value / count if value.dtype.is_float else call("truncdiv", value, count)

    axioms = (
        law("reduce_mean(add(x, y), axes=[1]) = add(reduce_mean(x, axes=[1]), "
            "reduce_mean(y, axes=[1]))", "real", when=("shape(x) == shape(y)",),
            x=(2, 3), y=(2, 3)),
        law("reduce_mean(reduce_mean(x, axes=[2]), axes=[1]) = reduce_mean(x, axes=[1, 2])",
            "real", x=(2, 3, 4)),
    )  # fmt: skip


@operator("reduce_max", "x")
class ReduceMax(Reduction):
    """The largest element along the axes ("any" of truth values)."""

    accepts = (*NUMERIC, bool_)
    numpy = staticmethod(np.max)

    def kind(self, dtype: DType) -> str:
        return "any" if dtype is bool_ else "max"

    def of_nothing(self, dtype: DType) -> float:
        if dtype.is_float:
            return -math.inf
        return 0 if dtype is bool_ else int(np.iinfo(dtype.numpy).min)

    axioms = (
        law("reduce_max(reduce_max(x, axes=[2]), axes=[1]) = reduce_max(x, axes=[1, 2])",
            "exact", x=(2, 3, 4)),
        law("reduce_max(relu(x), axes=[1]) = relu(reduce_max(x, axes=[1]))", "exact", x=(2, 3)),
    )  # fmt: skip


@operator("reduce_min", "x")
class ReduceMin(Reduction):
    """The smallest element along the axes ("all" of truth values)."""

    accepts = (*NUMERIC, bool_)
    numpy = staticmethod(np.min)

    def kind(self, dtype: DType) -> str:
        return "all" if dtype is bool_ else "min"

    def of_nothing(self, dtype: DType) -> float:
        if dtype.is_float:
            return math.inf
        return 1 if dtype is bool_ else int(np.iinfo(dtype.numpy).max)

    axioms = (
        law("reduce_min(reduce_min(x, axes=[2]), axes=[1]) = reduce_min(x, axes=[1, 2])",
            "exact", x=(2, 3, 4)),
        law("reduce_min(relu(x), axes=[1]) = relu(reduce_min(x, axes=[1]))", "exact", x=(2, 3)),
    )  # fmt: skip


@operator("reduce_prod", "x")
class ReduceProd(Reduction):
    """The product along the axes."""

    @staticmethod
    def numpy(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        return np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype)

    def kind(self, dtype: DType) -> str:
        return "prod"

    def of_nothing(self, dtype: DType) -> float:
        return 1

    axioms = (
        law("reduce_prod(reduce_prod(x, axes=[2]), axes=[1]) = reduce_prod(x, axes=[1, 2])",
            "real", x=(2, 3, 4)),
    )  # fmt: skip


# ----------------------------------------------------------------------------- arg-reductions
@dataclass(frozen=True)
class ArgReduction(Op):
    """Base: where along `axis` the extreme element is; the first (or last) one wins ties.

    NaN is the extreme wherever there is one.
    """

    axis: int
    keepdims: bool = False
    select_last: bool = False

    numpy: ClassVar[Callable[..., Any]]
    kind: ClassVar[str]

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype in NUMERIC, self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(0 <= self.axis < x.rank and x.shape[self.axis] > 0, self,
                f"axis {self.axis} is no axis with elements", x, code="WH1104")  # fmt: skip
        return TensorType(reduced_shape(x.shape, (self.axis,), self.keepdims), i64)

    def reference(self, x: Array) -> Array:
        if not self.select_last:
            return np.asarray(self.numpy(x, axis=self.axis, keepdims=self.keepdims))
        mirrored = self.numpy(np.flip(x, self.axis), axis=self.axis, keepdims=self.keepdims)
        return np.asarray(x.shape[self.axis] - 1 - mirrored)

    def compute(self, x: Tensor) -> Compute:
        extent = x.shape[self.axis]
        k = reduce_axis(extent, "k")

        def body(*i: Expr) -> Expr:
            before, after = i[: self.axis], i[self.axis + self.keepdims :]
            at = const(extent - 1, i64) - k if self.select_last else k
            found = reduce(self.kind, x[(*before, at, *after)], k)
            return const(extent - 1, i64) - found if self.select_last else found

        return compute(self.infer(x.type).shape, body, self.name)

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(1), (TensorType((3, 5), f32),)),
            Sample(cls(0, True, True), (TensorType((6, 2), i64),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        rank = int(rng.integers(1, 4))
        shape = tuple(int(d) for d in rng.integers(1, 6, rank))
        op = cls(int(rng.integers(rank)), bool(rng.integers(2)), bool(rng.integers(2)))
        return Sample(op, (TensorType(shape, i64 if rng.integers(2) else f32),))


@operator("argmax", "x")
class ArgMax(ArgReduction):
    """Index of the largest element along the axis."""

    kind = "argmax"
    numpy = staticmethod(np.argmax)
    axioms = NoAlgebra("positions take no part in rewrites")


@operator("argmin", "x")
class ArgMin(ArgReduction):
    """Index of the smallest element along the axis."""

    kind = "argmin"
    numpy = staticmethod(np.argmin)
    axioms = NoAlgebra("positions take no part in rewrites")
