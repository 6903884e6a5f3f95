"""Softmax and its logarithm, in terms of reductions and element-wise operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.dtypes import FLOATS, f16, f32
from whet.core.types import Array, TensorType
from whet.ops.arithmetic import Exp, Log, Mul, Reciprocal, Sub
from whet.ops.base import Builder, Op, Sample, law, operator, require
from whet.ops.reduce import ReduceMax, ReduceSum
from whet.ops.shared.precision import converted, widen, widened


@dataclass(frozen=True)
class SoftmaxFamily(Op):
    """Base: a distribution along one axis.  The peak is subtracted first, so that the largest
    exponential is 1 and nothing overflows."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype in FLOATS, self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(0 <= self.axis < x.rank, self, f"axis {self.axis} does not exist", x,
                code="WH1104")  # fmt: skip
        return x

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(1), (TensorType((3, 5), f32),)),
            Sample(cls(0), (TensorType((4, 2, 3), f16),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        rank = int(rng.integers(1, 5))
        shape = tuple(int(d) for d in rng.integers(1, 6, rank))
        dtype = FLOATS[int(rng.integers(len(FLOATS)))]
        return Sample(cls(int(rng.integers(rank))), (TensorType(shape, dtype),))


@operator("softmax", "x")
class Softmax(SoftmaxFamily):
    """exp(x) divided by its sum along the axis."""

    def reference(self, x: Array) -> Array:
        if x.size == 0:
            return x
        wide = widen(x)
        e = np.exp(wide - wide.max(self.axis, keepdims=True))
        return np.asarray(e / e.sum(self.axis, keepdims=True)).astype(x.dtype, copy=False)

    def expand(self, b: Builder, x: Any) -> Any:
        wide = widened(b, x)
        peak = b(ReduceMax((self.axis,), keepdims=True), wide)
        e = b(Exp(), b(Sub(), wide, peak))
        total = b(ReduceSum((self.axis,), keepdims=True), e)
        return converted(b, b(Mul(), e, b(Reciprocal(), total)), b.type(x).dtype)

    axioms = (
        law("softmax(add(x, y), axis=k) = softmax(x, axis=k)", "real",
            when=("dim(y, k) == 1", "dim(y, 0) <= dim(x, 0)", "dim(y, 1) <= dim(x, 1)"),
            x=(2, 3), y=(2, 1), k=1),
        law("softmax(transpose(x, perm=[1, 0]), axis=0) = "
            "transpose(softmax(x, axis=1), perm=[1, 0])", "real", x=(2, 3)),
    )  # fmt: skip


@operator("log_softmax", "x")
class LogSoftmax(SoftmaxFamily):
    """x minus the logarithm of the sum of exp(x) along the axis."""

    def reference(self, x: Array) -> Array:
        if x.size == 0:
            return x
        wide = widen(x)
        centred = wide - wide.max(self.axis, keepdims=True)
        result = centred - np.log(np.exp(centred).sum(self.axis, keepdims=True))
        return np.asarray(result).astype(x.dtype, copy=False)

    def expand(self, b: Builder, x: Any) -> Any:
        wide = widened(b, x)
        centred = b(Sub(), wide, b(ReduceMax((self.axis,), keepdims=True), wide))
        total = b(ReduceSum((self.axis,), keepdims=True), b(Exp(), centred))
        return converted(b, b(Sub(), centred, b(Log(), total)), b.type(x).dtype)

    axioms = (law("log_softmax(x, axis=1) = log(softmax(x, axis=1))", "real", x=(2, 3)),)
