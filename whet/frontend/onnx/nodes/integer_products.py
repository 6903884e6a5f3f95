"""ONNX products of quantized tensors: those of the numbers less their zero points.

QLinearMatMul(a, b)  ->  quantize(f32(matmul(i32(a) - a_zero, i32(b) - b_zero)) * factor)
"""

from __future__ import annotations

from whet.core.dtypes import f32, i32
from whet.frontend.onnx.mapping import Context, maps
from whet.frontend.onnx.nodes.contraction import matrix_product
from whet.frontend.onnx.nodes.window import read_window
from whet.graph.graph import Value
from whet.ops.arithmetic import Add, Div, Mul, Sub
from whet.ops.casting import Cast
from whet.ops.conv import Conv
from whet.ops.movement import Reshape
from whet.ops.quantize import QuantizeLinear


def _along(c: Context, value: Value, axis: int, rank: int) -> Value:
    """A vector with an element per position of the axis, in a shape that broadcasts."""
    t = value.tensor_type
    if t.rank != 1 or t.size == 1:
        return value
    return c(Reshape(tuple(t.size if n == axis else 1 for n in range(rank))), value)


def _centred(c: Context, index: int, zero_index: int, axis: int) -> Value:
    """A quantized input less its zero point, which may have an element per position.

    Integers become i32 and 8-bit floats f32: neither the difference nor products are rounded.
    """
    value, zero = c.input(index), c.optional(zero_index)
    widen = Cast(f32 if c.type(index).dtype.is_float else i32)
    if zero is None:
        return c(widen, value)
    return c(Sub(), c(widen, value), c(widen, _along(c, zero, axis, c.type(index).rank)))


def _requantized(c: Context, product: Value, scales: tuple[Value, Value, Value], axis: int,
                 zero_point: Value) -> Value:  # fmt: skip
    """quantize(product * a_scale * b_scale / y_scale)."""
    a, b, y = (c(Cast(f32), s) if s.tensor_type.dtype != f32 else s for s in scales)
    factor = c(Div(), c(Mul(), a, b), y)
    if product.tensor_type.dtype != f32:
        product = c(Cast(f32), product)
    zeros = zero_point.tensor_type.shape
    unit = c.filled(1, f32, zeros)
    return c(QuantizeLinear(axis), c(Mul(), product, factor), unit, zero_point)


@maps("MatMulInteger")
def matmul_integer(c: Context) -> Value:
    rows, columns = c.type(0).rank - 2, c.type(1).rank - 1
    return matrix_product(c, _centred(c, 0, 2, rows), _centred(c, 1, 3, columns))


@maps("QLinearMatMul")
def qlinear_matmul(c: Context) -> Value:
    rows, columns = c.type(0).rank - 2, c.type(3).rank - 1
    product = matrix_product(c, _centred(c, 0, 2, rows), _centred(c, 3, 5, columns))
    rank = product.tensor_type.rank
    scales = (
        _along(c, c.input(1), rank - 2, rank),
        _along(c, c.input(4), rank - 1, rank),
        _along(c, c.input(6), rank - 2, rank),
    )
    return _requantized(c, product, scales, max(rank - 2, 0), c.input(7))


def _convolution(c: Context, x: Value, w: Value) -> Value:
    window = read_window(c, x.tensor_type.shape[2:], w.tensor_type.shape[2:])
    return c(Conv(window.strides, window.pads, window.dilations, c.attr("group", 1)), x, w)


@maps("ConvInteger")
def conv_integer(c: Context) -> Value:
    return _convolution(c, _centred(c, 0, 2, 1), _centred(c, 1, 3, 0))


@maps("QLinearConv")
def qlinear_conv(c: Context) -> Value:
    product = _convolution(c, _centred(c, 0, 2, 1), _centred(c, 3, 5, 0))
    rank = product.tensor_type.rank
    bias = c.optional(8)
    if bias is not None:
        product = c(Add(), product, _along(c, bias, 1, rank))
    scales = (c.input(1), _along(c, c.input(4), 1, rank), c.input(6))
    return _requantized(c, product, scales, 1, c.input(7))
