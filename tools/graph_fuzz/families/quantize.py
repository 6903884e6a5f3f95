"""Quantized tensors: conversions, products, and the patterns that exporters write."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.graph_fuzz.families.convolution import draw_window, filter_shape, image_shape
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from tools.graph_fuzz.shapes import draw_extent
from tools.graph_fuzz.values import integer_range
from whet.core.dtypes import DType, f32, i8, i32, u8
from whet.core.types import Shape

SCALES = [0.25, 0.5, 0.0625, 0.1, 0.017]


def scale(g: Growth, dtype: DType, shape: Shape = ()) -> Held:
    """Steps of a quantized tensor: powers of two, and others."""
    options = np.asarray(SCALES)
    return g.operand(options[g.draw.rng.integers(0, len(SCALES), shape)].astype(dtype.numpy), 0.85)


def zero_point(g: Growth, dtype: DType, shape: Shape = ()) -> Held:
    if dtype.is_float:
        return g.operand(np.zeros(shape, dtype.numpy), 0.9)
    low, high = integer_range(dtype)
    low, high = (max(low, -20), min(high, 20)) if dtype.bits < 32 else (0, 0)
    low, high = (108, 148) if dtype == u8 and g.draw.chance(0.5) else (low, high)
    array = g.draw.rng.integers(low, high + 1, shape).astype(dtype.numpy)
    return g.operand(array, 0.9)


def _along(g: Growth, shape: Shape) -> tuple[Shape, int | None]:
    """The shape of the scales, and the axis that they are for."""
    if shape and g.draw.chance(0.5):
        axis = g.draw.integer(0, len(shape) - 1)
        return (shape[axis],), axis
    return (), None


@generates("QuantizeLinear")
def quantize(g: Growth, name: str) -> Held:
    inputs = g.types(name, "T1")
    v = g.tensor([d for d in inputs if d.is_float])
    shape, axis = _along(g, v.shape)
    to = g.dtype([d for d in g.types(name, "T2" if g.opset < 23 else "T3") if d.bits <= 16])
    steps = scale(g, v.dtype, shape)
    zero = zero_point(g, to, shape) if to != u8 or g.draw.chance(0.7) else None
    if axis is not None and g.opset < 13:
        raise Impossible
    return g.emit(name, v, steps, zero, axis=axis)


@generates("DequantizeLinear")
def dequantize(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name, "T" if g.opset < 19 else "T1"))
    shape, axis = _along(g, v.shape)
    if axis is not None and g.opset < 13:
        raise Impossible
    dtype = f32 if g.opset < 19 else g.dtype([d for d in g.types(name, "T2") if d.bits >= 16])
    zero = zero_point(g, v.dtype, shape) if v.dtype != i32 and g.draw.chance(0.7) else None
    return g.emit(name, v, scale(g, dtype, shape), zero, axis=axis)


@generates("DynamicQuantizeLinear")
def dynamic_quantize(g: Growth, name: str) -> Held | list[Held]:
    """Alone, or as exporters use it: before an integer product that is scaled afterwards."""
    v = g.tensor((f32,), rank=range(1, 5), where=lambda v: v.size > 0)
    q, step, zero = g.emit(name, v, outputs=3)
    if v.rank < 2 or g.draw.chance(0.3) or g.opset < 11:
        return [q, step, zero]
    inner, columns = v.shape[-1], draw_extent(g.draw, 33)
    weights = _integers(g, g.draw.pick([i8, u8]), (inner, columns))
    weight_zero = zero_point(g, weights.dtype) if g.draw.chance(0.5) else None
    product = g.emit("MatMulInteger", q, weights, zero, weight_zero)
    factor = g.emit("Mul", step, scale(g, f32, g.draw.pick([(), (columns,)])))
    return g.emit("Mul", g.emit("Cast", product, to=1), factor)


def _integers(g: Growth, dtype: DType, shape: Shape, constant: float = 0.7) -> Held:
    low, high = integer_range(dtype)
    return g.operand(g.draw.rng.integers(low, high + 1, shape).astype(dtype.numpy), constant)


def _quantized(g: Growth, dtypes: tuple[DType, ...], ranks: Any, shape: Any) -> Held:
    if g.draw.chance(0.5):
        found = [v for v in g.visible() if v.dtype in dtypes and v.rank in ranks and v.size]
        if found:
            return g.draw.pick(found)
    return _integers(g, g.draw.pick(dtypes), shape(), 0.2)


def _matrices(
    g: Growth, a_types: tuple[DType, ...], b_types: tuple[DType, ...]
) -> tuple[Held, Held]:
    a = _quantized(g, a_types, range(2, 5), lambda: g.shape(g.draw.pick([2, 2, 3]), most=1000))
    columns = draw_extent(g.draw, max(1, min(65, (1 << 15) // max(a.size, 1))))
    lead = a.shape[:-2] if g.draw.chance(0.3) else ()
    return a, _integers(g, g.draw.pick(b_types), (*lead, a.shape[-1], columns))


@generates("MatMulInteger")
def matmul_integer(g: Growth, name: str) -> Held:
    a, b = _matrices(g, g.types(name, "T1"), g.types(name, "T2"))
    a_zero = zero_point(g, a.dtype) if g.draw.chance(0.6) else None
    b_shape = (b.shape[-1],) if b.rank == 2 and g.draw.chance(0.3) else ()
    b_zero = zero_point(g, b.dtype, b_shape) if g.draw.chance(0.6) else None
    return g.emit(name, a, b, a_zero, b_zero)


@generates("QLinearMatMul")
def qlinear_matmul(g: Growth, name: str) -> Held:
    integers = [d for d in g.types(name, "T1") if d.is_integer]
    a, b = _matrices(g, tuple(integers), tuple(integers))
    steps = g.types(name, "TS") if g.opset >= 21 else (f32,)
    per_column = (b.shape[-1],) if b.rank == 2 and g.draw.chance(0.3) else ()
    dtype = f32 if g.draw.chance(0.7) else g.dtype(steps)
    y_step = g.operand(np.asarray(g.draw.pick([8.0, 20.0, 3.7]), dtype.numpy), 0.9)
    out = g.draw.pick(integers)
    return g.emit(
        name, a, scale(g, dtype), zero_point(g, a.dtype), b, scale(g, dtype, per_column),
        zero_point(g, b.dtype, per_column), y_step, zero_point(g, out),
    )  # fmt: skip


def _integer_image(g: Growth, dtypes: tuple[DType, ...]) -> Held:
    return _quantized(g, dtypes, range(3, 5), lambda: image_shape(g)[: g.draw.pick([3, 4, 4])])


def _convolution(g: Growth, x: Held, dtypes: tuple[DType, ...]) -> tuple[Held, dict[str, Any]]:
    """Integer weights for the image, and the attributes."""
    if not x.size:
        raise Impossible
    window = draw_window(g, x.shape[2:])
    shape, groups = filter_shape(g, x, window)
    weights = _integers(g, g.draw.pick(dtypes), shape, 0.9)
    return weights, {"group": groups if groups > 1 else None, **window.attributes(g)}


@generates("ConvInteger")
def conv_integer(g: Growth, name: str) -> Held:
    x = _integer_image(g, g.types(name, "T1"))
    weights, given = _convolution(g, x, g.types(name, "T2"))
    x_zero = zero_point(g, x.dtype) if g.draw.chance(0.6) else None
    w_zero = zero_point(g, weights.dtype) if g.draw.chance(0.4) else None
    return g.emit(name, x, weights, x_zero, w_zero, **given)


@generates("QLinearConv")
def qlinear_conv(g: Growth, name: str) -> Held:
    x = _integer_image(g, g.types(name, "T1"))
    weights, given = _convolution(g, x, g.types(name, "T2"))
    channels = weights.shape[0]
    per_channel = (channels,) if g.draw.chance(0.4) else ()
    bias = None
    if g.draw.chance(0.6):
        bias = g.operand(g.draw.rng.integers(-200, 200, channels).astype(np.int32), 0.9)
    fan = math.prod(weights.shape[1:])
    y_step = g.operand(np.asarray(g.draw.pick([0.5, 3.7]) * math.sqrt(fan), np.float32), 0.9)
    return g.emit(
        name, x, scale(g, f32), zero_point(g, x.dtype), weights, scale(g, f32, per_channel),
        zero_point(g, weights.dtype, per_channel), y_step,
        zero_point(g, g.draw.pick(g.types(name, "T3"))), bias, **given,
    )  # fmt: skip


def around(g: Growth, v: Held) -> Held:
    """Quantized and back again, as quantized models have it around every operator."""
    to = g.draw.pick([u8, i8])
    step, zero = scale(g, f32), zero_point(g, to)
    q = g.emit("QuantizeLinear", v, step, zero)
    return g.emit("DequantizeLinear", q, step, zero)
