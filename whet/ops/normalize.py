"""Normalizations, in terms of reductions and element-wise operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whet.core.dtypes import FLOATS, compute_dtype, f16, f32
from whet.core.types import Array, TensorType, broadcast_shapes
from whet.ir.expr import Expr, call, cast
from whet.ir.tensor import Compute, Tensor, compute, guarded_read, reduce_axis, sum_
from whet.ops.arithmetic import Add, Mul, Reciprocal, Sqrt, Sub
from whet.ops.base import Builder, Domain, NoAlgebra, Op, Sample, operator, require
from whet.ops.movement import Reshape
from whet.ops.reduce import ReduceMean
from whet.ops.shared.precision import converted, scalar, widen

_COMPOSITE = NoAlgebra("its algebra is that of the operators it expands into")


def moments(b: Builder, x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The mean along the axes, x less its mean, and the variance, all with the axes kept.

    The variance is the mean square of the distances: mean(x^2) - mean(x)^2 would be the
    difference of two large numbers where the mean is large, and lose all digits.
    """
    mean = b(ReduceMean(axes, keepdims=True), x)
    centred = b(Sub(), x, mean)
    return mean, centred, b(ReduceMean(axes, keepdims=True), b(Mul(), centred, centred))


def standardize(b: Builder, x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """x with mean 0 and variance 1 along the axes, its mean, and 1 / its standard deviation."""
    mean, centred, variance = moments(b, x, axes)
    scale = _inverse_root(b, variance, epsilon)
    return b(Mul(), centred, scale), mean, scale


def _inverse_root(b: Builder, square: Any, epsilon: float) -> Any:
    return b(Reciprocal(), b(Sqrt(), b(Add(), square, scalar(b, epsilon, square))))


def _standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    if not x.size:
        return x  # NumPy warns of the mean of nothing
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt(np.var(x, axes, keepdims=True) + epsilon)


def _per_channel(parameter: Array, rank: int) -> Array:
    """A vector with one element per channel, shaped to broadcast along axis 1."""
    return widen(parameter).reshape(-1, *(1,) * (rank - 2))


def _require_float(op: Op, x: TensorType, axis: int) -> None:
    require(x.dtype in FLOATS, op, f"no meaning for {x.dtype}", x, code="WH1103")
    require(0 <= axis < x.rank, op, f"axis {axis} does not exist", x, code="WH1104")


def _require_channels(op: Op, x: TensorType, *parameters: TensorType) -> None:
    require(x.dtype in FLOATS and all(p.dtype in FLOATS for p in parameters), op,
            "no meaning for these types", x, *parameters, code="WH1103")  # fmt: skip
    require(x.rank >= 2 and all(p.shape == x.shape[1:2] for p in parameters), op,
            "parameters must have one element per channel", x, *parameters)  # fmt: skip


# ----------------------------------------------------------------- with given mean and variance
@operator("batch_norm", "x", "scale", "bias", "mean", "var")
class BatchNorm(Op):
    """(x - mean) / sqrt(var + epsilon) * scale + bias, with one of each per channel (axis 1)."""

    epsilon: float = 1e-5

    def infer(self, x: TensorType, *parameters: TensorType) -> TensorType:
        _require_channels(self, x, *parameters)
        return x

    def reference(self, x: Array, *parameters: Array) -> Array:
        scale, bias, mean, var = (_per_channel(p, x.ndim) for p in parameters)
        result = (widen(x) - mean) / np.sqrt(var + self.epsilon) * scale + bias
        return np.asarray(result).astype(x.dtype, copy=False)

    def expand(self, b: Builder, x: Any, *parameters: Any) -> Any:
        """x * factor + offset: with constant parameters, factor and offset are constant too."""
        t = b.type(x)
        inner = compute_dtype(t.dtype)
        shape = (t.shape[1], *(1,) * (t.rank - 2))
        scale, bias, mean, var = (b(Reshape(shape), converted(b, p, inner)) for p in parameters)
        deviation = b(Sqrt(), b(Add(), var, scalar(b, self.epsilon, var)))
        factor = b(Mul(), scale, b(Reciprocal(), deviation))
        offset = b(Sub(), bias, b(Mul(), mean, factor))
        scaled = b(Add(), b(Mul(), converted(b, x, inner), factor), offset)
        return converted(b, scaled, t.dtype)

    axioms = _COMPOSITE

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (cls._sample((2, 3, 4, 5)), cls._sample((4, 3)))

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        return cls._sample(tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(2, 5)))))

    @classmethod
    def _sample(cls, shape: tuple[int, ...]) -> Sample:
        channel = TensorType(shape[1:2], f32)
        types = (TensorType(shape, f32), *(channel,) * 4)
        return Sample(cls(), types, (None, None, None, None, Domain(0.1, 2.0)))


# --------------------------------------------------------------- with mean and variance of x
@operator("layer_norm", "x", "scale", "bias")
class LayerNorm(Op):
    """x standardized along all axes from `axis` on, times scale, plus bias."""

    axis: int
    epsilon: float = 1e-5

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        _require_float(self, x, self.axis)
        fits = broadcast_shapes(x.shape, scale.shape, bias.shape) == x.shape
        require(fits, self, "scale and bias must broadcast to the input", x, scale, bias)
        return x

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        normal = _standardized(widen(x), tuple(range(self.axis, x.ndim)), self.epsilon)
        result = normal * widen(scale) + widen(bias)
        return np.asarray(result).astype(x.dtype, copy=False)

    def expand(self, b: Builder, x: Any, scale: Any, bias: Any) -> Any:
        t = b.type(x)
        inner = compute_dtype(t.dtype)
        axes = tuple(range(self.axis, t.rank))
        normal, _, _ = standardize(b, converted(b, x, inner), axes, self.epsilon)
        scaled = b(Mul(), normal, converted(b, scale, inner))
        return converted(b, b(Add(), scaled, converted(b, bias, inner)), t.dtype)

    axioms = _COMPOSITE

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        last, both = TensorType((5,), f32), TensorType((3, 5), f16)
        return (
            Sample(cls(1), (TensorType((3, 5), f32), last, last)),
            Sample(cls(1), (TensorType((2, 3, 5), f16), both, both)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(1, 5))))
        axis = int(rng.integers(len(shape)))
        parameter = TensorType(shape[axis:], f32)
        return Sample(cls(axis), (TensorType(shape, f32), parameter, parameter))


@operator("rms_norm", "x", "scale")
class RMSNorm(Op):
    """x divided by its root mean square along all axes from `axis` on, times scale."""

    axis: int
    epsilon: float = 1e-5

    def infer(self, x: TensorType, scale: TensorType) -> TensorType:
        _require_float(self, x, self.axis)
        fits = broadcast_shapes(x.shape, scale.shape) == x.shape
        require(fits, self, "scale must broadcast to the input", x, scale)
        return x

    def reference(self, x: Array, scale: Array) -> Array:
        if not x.size:
            return x.copy()
        wide = widen(x)
        square = np.mean(wide**2, tuple(range(self.axis, x.ndim)), keepdims=True)
        result = wide / np.sqrt(square + self.epsilon) * widen(scale)
        return np.asarray(result).astype(x.dtype, copy=False)

    def expand(self, b: Builder, x: Any, scale: Any) -> Any:
        t = b.type(x)
        inner = compute_dtype(t.dtype)
        axes = tuple(range(self.axis, t.rank))
        wide = converted(b, x, inner)
        square = b(ReduceMean(axes, keepdims=True), b(Mul(), wide, wide))
        normal = b(Mul(), wide, _inverse_root(b, square, self.epsilon))
        return converted(b, b(Mul(), normal, converted(b, scale, inner)), t.dtype)

    axioms = _COMPOSITE

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(1), (TensorType((3, 5), f32), TensorType((5,), f32))),
            Sample(cls(1), (TensorType((2, 3, 5), f16), TensorType((3, 5), f16))),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(1, 5))))
        axis = int(rng.integers(len(shape)))
        return Sample(cls(axis), (TensorType(shape, f32), TensorType(shape[axis:], f32)))


@operator("group_norm", "x", "scale", "bias")
class GroupNorm(Op):
    """x standardized over each of `groups` groups of channels, then scaled per channel."""

    groups: int
    epsilon: float = 1e-5

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        _require_channels(self, x, scale, bias)
        require(self.groups > 0 and x.shape[1] % self.groups == 0, self,
                f"{self.groups} groups of {x.shape[1]} channels", x, code="WH1104")  # fmt: skip
        return x

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        groups = widen(x).reshape(x.shape[0], self.groups, math.prod(x.shape[1:]) // self.groups)
        normal = _standardized(groups, (2,), self.epsilon).reshape(x.shape)
        result = normal * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)
        return np.asarray(result).astype(x.dtype, copy=False)

    def expand(self, b: Builder, x: Any, scale: Any, bias: Any) -> Any:
        t = b.type(x)
        inner = compute_dtype(t.dtype)
        size = math.prod(t.shape[1:]) // self.groups
        groups = b(Reshape((t.shape[0], self.groups, size)), converted(b, x, inner))
        normal = b(Reshape(t.shape), standardize(b, groups, (2,), self.epsilon)[0])
        channel = (t.shape[1], *(1,) * (t.rank - 2))
        scaled = b(Mul(), normal, b(Reshape(channel), converted(b, scale, inner)))
        shifted = b(Add(), scaled, b(Reshape(channel), converted(b, bias, inner)))
        return converted(b, shifted, t.dtype)

    axioms = _COMPOSITE

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        channel = TensorType((4,), f32)
        return (Sample(cls(2), (TensorType((2, 4, 3, 3), f32), channel, channel)),)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        groups, each, batch, width = (int(d) for d in rng.integers(1, 5, 4))
        channel = TensorType((groups * each,), f32)
        x = TensorType((batch, groups * each, width, 3), f32)
        return Sample(cls(groups), (x, channel, channel))


@operator("instance_norm", "x", "scale", "bias")
class InstanceNorm(Op):
    """x standardized over each channel of each instance, then scaled per channel."""

    epsilon: float = 1e-5

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        _require_channels(self, x, scale, bias)
        return x

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        normal = _standardized(widen(x), tuple(range(2, x.ndim)), self.epsilon)
        result = normal * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)
        return np.asarray(result).astype(x.dtype, copy=False)

    def expand(self, b: Builder, x: Any, scale: Any, bias: Any) -> Any:
        return b(GroupNorm(b.type(x).shape[1], self.epsilon), x, scale, bias)

    axioms = _COMPOSITE

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        channel = TensorType((4,), f32)
        return (Sample(cls(), (TensorType((2, 4, 3, 3), f32), channel, channel)),)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(3, 6))))
        channel = TensorType(shape[1:2], f32)
        return Sample(cls(), (TensorType(shape, f32), channel, channel))


# ------------------------------------------------------------------------------ across channels
@operator("lrn", "x")
class LRN(Op):
    """x / (bias + alpha / size * sum of squares of `size` neighbouring channels) ^ beta."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def infer(self, x: TensorType) -> TensorType:
        _require_float(self, x, 1)
        require(self.size > 0, self, f"size {self.size} is not positive", code="WH1104")
        return x

    def reference(self, x: Array) -> Array:
        wide = widen(x)
        before, after = (self.size - 1) // 2, self.size // 2
        widths = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
        squares = np.pad(wide**2, widths)
        total = sum(squares[:, n : n + x.shape[1]] for n in range(self.size))
        result = wide / (self.bias + self.alpha / self.size * total) ** self.beta
        return np.asarray(result).astype(x.dtype, copy=False)

    def compute(self, x: Tensor) -> Compute:
        inner = compute_dtype(x.dtype)
        k = reduce_axis(self.size, "k")

        def squares(*i: Expr) -> Expr:
            channel = i[1] + k - (self.size - 1) // 2
            near = cast(guarded_read(x, (i[0], channel, *i[2:]), 0), inner)
            return sum_(near * near, k)

        total = compute(x.shape, squares, "squares")

        def body(*i: Expr) -> Expr:
            scale = total[i] * (self.alpha / self.size) + self.bias
            return cast(cast(x[i], inner) / call("pow", scale, self.beta), x.dtype)

        return compute(x.shape, body, "lrn")

    axioms = NoAlgebra("a power of a sum of squares commutes with nothing")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(3), (TensorType((2, 5, 3, 3), f32),)),
            Sample(cls(4, 0.5, 0.5, 2.0), (TensorType((1, 6, 2), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(2, 5))))
        return Sample(cls(int(rng.integers(1, 6)), 0.3), (TensorType(shape, f32),))
