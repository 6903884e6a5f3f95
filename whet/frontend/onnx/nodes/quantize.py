"""ONNX conversions to quantized tensors and back."""

from __future__ import annotations

from whet.core.dtypes import f32, u8
from whet.frontend.onnx.mapping import Context, maps, normalized_axis
from whet.frontend.onnx.nodes.casting import dtype_attribute
from whet.graph.graph import Value
from whet.ops.arithmetic import Div, Maximum, Minimum, Neg, Sub
from whet.ops.logic import Equal, Where
from whet.ops.quantize import DequantizeLinear, QuantizeLinear
from whet.ops.reduce import ReduceMax, ReduceMin


def _axis(c: Context) -> int:
    """The quantized axis; one scale counts for the whole tensor, whatever the attribute says."""
    zero_point = c.optional(2)
    if c.type(1).size == 1 and (zero_point is None or zero_point.tensor_type.size == 1):
        return 0
    return normalized_axis(c.attr("axis", 1), c.type(0).rank)


@maps("QuantizeLinear", since=10)
def quantize_linear(c: Context) -> Value:
    zero_point = c.optional(2)
    to = dtype_attribute(c, "output_dtype")
    if zero_point is None:
        zero_point = c.filled(0, to or u8, c.type(1).shape)
    elif to is not None and to != c.type(2).dtype:
        c.unsupported(f"output_dtype {to} with a zero point of {c.type(2).dtype}")
    op = QuantizeLinear(
        _axis(c),
        c.attr("block_size", 0),
        bool(c.attr("saturate", 1)),
        dtype_attribute(c, "precision"),
    )
    return c(op, c.input(0), c.input(1), zero_point)


@maps("DequantizeLinear", since=10)
def dequantize_linear(c: Context) -> Value:
    zero_point = c.optional(2)
    if zero_point is None:
        zero_point = c.filled(0, c.type(0).dtype, c.type(1).shape)
    to = dtype_attribute(c, "output_dtype") or c.type(1).dtype
    op = DequantizeLinear(to, _axis(c), c.attr("block_size", 0))
    return c(op, c.input(0), c.input(1), zero_point)


@maps("DynamicQuantizeLinear")
def dynamic_quantize_linear(c: Context) -> tuple[Value, Value, Value]:
    """Quantization to u8 over the range of the values and zero; all zeros have the scale 1."""
    x, axes = c.input(0), tuple(range(c.type(0).rank))
    zero, one, steps = (c.constant(v, f32) for v in (0.0, 1.0, 255.0))
    high = c(Maximum(), c(ReduceMax(axes, False), x), zero)
    low = c(Minimum(), c(ReduceMin(axes, False), x), zero)
    span = c(Div(), c(Sub(), high, low), steps)
    scale = c(Where(), c(Equal(), span, zero), one, span)
    zero_point = c(QuantizeLinear(), c(Neg(), low), scale, c.constant(0, u8))
    return c(QuantizeLinear(), x, scale, zero_point), scale, zero_point
