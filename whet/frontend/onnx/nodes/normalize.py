"""ONNX softmax and normalizations."""

from __future__ import annotations

import math

from whet.core.dtypes import compute_dtype, f32
from whet.frontend.onnx.mapping import Context, maps, normalized_axis
from whet.frontend.onnx.nodes.casting import dtype_attribute
from whet.graph.graph import Value
from whet.ops.arithmetic import Abs, Add, Div, Mul, Sqrt
from whet.ops.base import Op
from whet.ops.casting import Cast
from whet.ops.logic import Equal, Where
from whet.ops.movement import Expand, Reshape
from whet.ops.normalize import (
    LRN,
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
    moments,
    standardize,
)
from whet.ops.reduce import ArgMax, ReduceSum
from whet.ops.shared.precision import converted, scalar, widened
from whet.ops.softmax import LogSoftmax, Softmax


# ------------------------------------------------------------------------------------ softmax
def _along_axis(c: Context, axis: int, x: Value) -> Value:
    if c.op_type == "Hardmax":
        t = x.tensor_type
        first = c(ArgMax(axis, keepdims=True), x)
        shape = (-1, *(1,) * (t.rank - axis - 1))
        places = c.builder.constant(c.indices(t.shape[axis]).reshape(shape))
        return c(Cast(t.dtype), c(Equal(), first, places))
    op: Op = Softmax(axis) if c.op_type == "Softmax" else LogSoftmax(axis)
    return c(op, x)


@maps("Softmax", "LogSoftmax", "Hardmax")
def softmax_of_rows(c: Context) -> Value:
    """Before opset 13: along all axes from `axis` on, taken together."""
    shape = c.type(0).shape
    axis = normalized_axis(c.attr("axis", 1), len(shape)) if len(shape) > 1 else 0
    rows = c(Reshape((math.prod(shape[:axis]), math.prod(shape[axis:]))), c.input(0))
    return c(Reshape(shape), _along_axis(c, 1, rows))


@maps("Softmax", "LogSoftmax", "Hardmax", since=13)
def softmax(c: Context) -> Value:
    return _along_axis(c, normalized_axis(c.attr("axis", -1), c.type(0).rank), c.input(0))


# --------------------------------------------------------------------------------- batch norm
@maps("BatchNormalization")
def batch_normalization(c: Context) -> Value:
    if not c.attr("spatial", 1):
        c.unsupported("statistics per activation (spatial=0)")
    if c.n_outputs > 1 or c.attr("is_test", 1) == 0:
        c.unsupported("training outputs before opset 14")
    return _batch_norm(c, tuple(c.input(n) for n in range(1, 5)))


@maps("BatchNormalization", since=14)
def batch_normalization_with_training(c: Context) -> Value | tuple[Value, ...]:
    scale, bias, mean, variance = (c.input(n) for n in range(1, 5))
    if not c.attr("training_mode", 0):
        return _batch_norm(c, (scale, bias, mean, variance))
    return _with_own_statistics(c, scale, bias, (mean, variance))


def _with_own_statistics(
    c: Context, scale: Value, bias: Value, running: tuple[Value, Value]
) -> tuple[Value, ...]:
    """The input standardized per channel, and the running mean and variance moved toward it."""
    b, t = c.builder, c.type(0)
    x, inner = widened(b, c.input(0)), compute_dtype(t.dtype)
    column = (*scale.tensor_type.shape, *(1,) * (t.rank - 2))
    mean, centred, variance = moments(b, x, (0, *range(2, t.rank)))
    deviation = c(Sqrt(), c(Add(), variance, scalar(b, float(c.attr("epsilon", 1e-5)), x)))
    # The mean goes first: scaled before, it would take the digits of a small deviation with it.
    factors, offsets = (c(Reshape(column), converted(b, v, inner)) for v in (scale, bias))
    y = c(Add(), c(Mul(), c(Div(), centred, deviation), factors), offsets)
    momentum = float(c.attr("momentum", 0.9))
    moved = []
    for old, new in zip(running, (mean, variance), strict=True):
        kept = c(Mul(), converted(b, old, inner), scalar(b, momentum, x))
        current = c(Reshape(old.tensor_type.shape), new)
        added = c(Mul(), current, scalar(b, 1 - momentum, x))
        moved.append(converted(b, c(Add(), kept, added), old.tensor_type.dtype))
    return converted(b, y, t.dtype), *moved


def _batch_norm(c: Context, parameters: tuple[Value, ...]) -> Value:
    """Normalizes axis 1; a vector is one channel."""
    x, t = c.input(0), c.type(0)
    op = BatchNorm(float(c.attr("epsilon", 1e-5)))
    if t.rank == 1:
        return c(Reshape(t.shape), c(op, c(Reshape((*t.shape, 1)), x), *parameters))
    return c(op, x, *parameters)


# ---------------------------------------------------------------------- other normalizations
@maps("LayerNormalization")
def layer_normalization(c: Context) -> Value | tuple[Value, ...]:
    x, t = c.input(0), c.type(0)
    axis = normalized_axis(c.attr("axis", -1), t.rank)
    epsilon = float(c.attr("epsilon", 1e-5))
    bias = c.optional(2)
    if bias is None:
        bias = c.constant(0, t.dtype)
    y = c(LayerNorm(axis, epsilon), x, c.input(1), bias)
    if c.n_outputs == 1:
        return y
    stash = dtype_attribute(c, "stash_type") or f32
    _, mean, inverse = standardize(
        c.builder, widened(c.builder, x), tuple(range(axis, t.rank)), epsilon
    )
    return y, converted(c.builder, mean, stash), converted(c.builder, inverse, stash)


@maps("RMSNormalization")
def rms_normalization(c: Context) -> Value:
    t, scale = c.type(0), c.type(1)
    axis = normalized_axis(c.attr("axis", -1), t.rank)
    y = c(RMSNorm(axis, float(c.attr("epsilon", 1e-5))), c.input(0), c.input(1))
    return converted(c.builder, y, scale.dtype)


@maps("GroupNormalization")
def group_normalization_per_group(c: Context) -> Value:
    """Opset 18: scale and bias have one element per group."""
    groups, channels = int(c.attr("num_groups")), c.type(0).shape[1]

    def per_channel(index: int) -> Value:
        column = c(Reshape((groups, 1)), c.input(index))
        return c(Reshape((channels,)), c(Expand((groups, channels // groups)), column))

    op = GroupNorm(groups, float(c.attr("epsilon", 1e-5)))
    return c(op, c.input(0), per_channel(1), per_channel(2))


@maps("GroupNormalization", since=21)
def group_normalization(c: Context) -> Value:
    op = GroupNorm(int(c.attr("num_groups")), float(c.attr("epsilon", 1e-5)))
    return c(op, c.input(0), c.input(1), c.input(2))


@maps("InstanceNormalization")
def instance_normalization(c: Context) -> Value:
    op = InstanceNorm(float(c.attr("epsilon", 1e-5)))
    return c(op, c.input(0), c.input(1), c.input(2))


@maps("MeanVarianceNormalization", since=9)
def mean_variance_normalization(c: Context) -> Value:
    """x less its mean, divided by its standard deviation.

    The standard's function body computes the variance as mean(x^2) - mean(x)^2, which is noise
    where the mean is large.
    """
    t, b = c.type(0), c.builder
    axes = tuple(sorted({normalized_axis(a, t.rank) for a in c.attr("axes", (0, 2, 3))}))
    x = widened(b, c.input(0))
    _, centred, variance = moments(b, x, axes)
    deviation = c(Add(), c(Sqrt(), variance), scalar(b, 1e-9, x))
    return converted(b, c(Div(), centred, deviation), t.dtype)


@maps("LRN")
def local_response_normalization(c: Context) -> Value:
    numbers = (float(c.attr(k, d)) for k, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return c(LRN(int(c.attr("size")), *numbers), c.input(0))


@maps("LpNormalization")
def lp_normalization(c: Context) -> Value:
    """x divided by its norm along an axis; zero where the norm is zero."""
    t, b = c.type(0), c.builder
    axes = (normalized_axis(c.attr("axis", -1), t.rank),)
    x = converted(b, c.input(0), compute_dtype(t.dtype))
    if c.attr("p", 2) == 1:
        norm = c(ReduceSum(axes, keepdims=True), c(Abs(), x))
    else:
        norm = c(Sqrt(), c(ReduceSum(axes, keepdims=True), c(Mul(), x, x)))
    zero = scalar(b, 0, x)
    divisor = c(Where(), c(Equal(), norm, zero), scalar(b, 1, x), norm)
    return converted(b, c(Div(), x, divisor), t.dtype)
