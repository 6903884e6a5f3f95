"""ONNX matrix products, einsum and convolutions."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Sequence

from whet.core.types import Shape
from whet.frontend.onnx.mapping import Context, maps
from whet.frontend.onnx.nodes.window import explicit_pads, per_axis, read_window, split_padding
from whet.graph.graph import Value
from whet.ops.activation import Swish
from whet.ops.arithmetic import Add, Mul
from whet.ops.conv import Conv, ConvTranspose
from whet.ops.einsum import Einsum
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Expand, Reshape, Slice, Transpose
from whet.ops.patch import Col2Im, DeformConv
from whet.ops.shared.window import Window


# ------------------------------------------------------------------------------------ products
@maps("MatMul")
def matmul(c: Context) -> Value:
    return matrix_product(c, c.input(0), c.input(1))


def matrix_product(c: Context, a: Value, b: Value) -> Value:
    """A vector on the left is a row, on the right a column; the added axis is dropped again."""
    left, right = a.tensor_type.shape, b.tensor_type.shape
    if not left or not right:
        c.unsupported("a scalar operand")
    if len(left) == 1:
        a = c(Reshape((1, *left)), a)
    if len(right) == 1:
        b = c(Reshape((*right, 1)), b)
    product = c(MatMul(), a, b)
    shape = list(product.tensor_type.shape)
    if len(left) == 1:
        del shape[-2]
    if len(right) == 1:
        del shape[-1]
    return c(Reshape(tuple(shape)), product) if 1 in (len(left), len(right)) else product


@maps("Gemm", since=7)
def gemm(c: Context) -> Value:
    """alpha * A' @ B' + beta * C, each factor left out where it is 1."""
    a = c(Transpose((1, 0)), c.input(0)) if c.attr("transA", 0) else c.input(0)
    b = c(Transpose((1, 0)), c.input(1)) if c.attr("transB", 0) else c.input(1)
    product = _scaled(c, c(MatMul(), a, b), c.attr("alpha", 1.0))
    bias = c.optional(2)
    if bias is None:
        return product
    return c(Add(), product, _scaled(c, bias, c.attr("beta", 1.0)))


def _scaled(c: Context, value: Value, factor: float) -> Value:
    dtype = value.tensor_type.dtype
    if factor == 1.0:
        return value
    if dtype.is_integer and not float(factor).is_integer():
        c.unsupported(f"factor {factor} of {dtype}")
    return c(Mul(), value, c.constant(factor, dtype))


# -------------------------------------------------------------------------------------- einsum
@maps("Einsum")
def einsum(c: Context) -> Value:
    """Two operands at a time, from the left, with every axis named by a letter."""
    values = [c.input(n) for n in range(len(c.inputs))]
    operands, result = explicit_terms(
        c, c.attr("equation"), [len(v.tensor_type.shape) for v in values]
    )
    while len(values) > 2:
        needed = set(result).union(*operands[2:])
        kept = "".join(dict.fromkeys(x for x in operands[0] + operands[1] if x in needed))
        pair = c(Einsum(f"{operands[0]},{operands[1]}->{kept}"), *values[:2])
        values, operands = [pair, *values[2:]], [kept, *operands[2:]]
    return c(Einsum(f"{','.join(operands)}->{result}"), *values)


def explicit_terms(c: Context, equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result.

        "...ij,...jk" on ranks 3 and 2   ->   ["zij", "jk"], "zik"

    Letters stand for the axes under an ellipsis, aligned at the right; an absent result has
    those first and then every letter that occurs once, in alphabetical order.
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        c.unsupported(f"equation '{equation}' for {len(ranks)} operands")
    free = [x for x in reversed(string.ascii_letters) if x not in equation]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks)]
    covered = [n for n, term in zip(hidden, terms) if "..." in term]
    longest = max(covered, default=0)
    if any(n < 0 for n in hidden) or longest > len(free):
        c.unsupported(f"equation '{equation}' on operands of ranks {list(ranks)}")
    ellipsis = "".join(free[:longest])
    operands = [term.replace("...", ellipsis[longest - n :]) for term, n in zip(terms, hidden)]
    if not arrow:
        counts = Counter(x for term in terms for x in term if x != ".")
        return operands, ellipsis + "".join(sorted(x for x, n in counts.items() if n == 1))
    if covered and longest and "..." not in result:
        c.unsupported(f"equation '{equation}' drops the ellipsis")
    return operands, result.replace("...", ellipsis)


# -------------------------------------------------------------------------------- convolutions
@maps("Conv")
def conv(c: Context) -> Value:
    window = read_window(c, c.type(0).shape[2:], _kernel(c))
    op = Conv(window.strides, window.pads, window.dilations, c.attr("group", 1))
    return _with_bias(c, c(op, c.input(0), c.input(1)), c.optional(2))


@maps("ConvTranspose")
def conv_transpose(c: Context) -> Value:
    spatial, kernel = c.type(0).shape[2:], _kernel(c)
    strides, dilations = per_axis(c, "strides", spatial), per_axis(c, "dilations", spatial)
    extra = per_axis(c, "output_padding", spatial, 0)
    pads = explicit_pads(c, spatial)
    image: Shape | None = None
    if c.attr("output_shape"):
        # Some exporters include batch and channels.
        image = tuple(c.attr("output_shape")[-len(spatial) :])
    elif c.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        image = tuple(i * s for i, s in zip(spatial, strides))
    if image is not None:
        spans = Window(kernel, strides, pads, dilations).spans
        excess = tuple(
            s * (i - 1) + e + span - wanted
            for i, s, e, span, wanted in zip(spatial, strides, extra, spans, image)
        )
        # What the filters do not reach is filled at the end, what is too much is cut off.
        extra = tuple(e + max(0, -t) for e, t in zip(extra, excess))
        pads = split_padding(c, tuple(max(0, t) for t in excess))
    op = ConvTranspose(strides, pads, dilations, extra, c.attr("group", 1))
    return _with_bias(c, c(op, c.input(0), c.input(1)), c.optional(2))


@maps("DeformConv")
def deform_conv(c: Context) -> Value:
    x, spatial = c.type(0), c.type(0).shape[2:]
    kernel, sets = _kernel(c), c.attr("offset_group", 1)
    op = DeformConv(
        per_axis(c, "strides", spatial),
        explicit_pads(c, spatial),
        per_axis(c, "dilations", spatial),
        c.attr("group", 1),
        sets,
    )
    offset, mask = c.input(2), c.optional(4)
    if mask is None:
        outputs = op.window(c.type(1).shape).outputs(op, spatial)
        shape = (x.shape[0], sets * math.prod(kernel), *outputs)
        mask = c(Expand(shape), c.constant(1, x.dtype))
    return _with_bias(c, c(op, c.input(0), c.input(1), offset, mask), c.optional(3))


@maps("CausalConvWithState", since=27)
def causal_conv_with_state(c: Context) -> tuple[Value, Value]:
    """A depthwise convolution of the past state followed by the input; the end is the state."""
    x, w = c.type(0), c.type(1)
    if x.rank != 3 or w.rank != 3 or w.shape[2] < 1:
        c.unsupported(f"input {x} with filters {w}")
    (batch, channels, length), kernel = x.shape, w.shape[2]
    past = c.optional(3)
    if past is None:
        past = c(Expand((batch, channels, kernel - 1)), c.constant(0, x.dtype))
    seen = c(Concat(axis=2), past, c.input(0))
    result = c(Conv((1,), (0, 0), (1,), channels), seen, c.input(1))
    result = _with_bias(c, result, c.optional(2))
    match c.attr("activation", "none"):
        case "none":
            pass
        case "silu" | "swish":
            result = c(Swish(1.0), result)
        case other:
            c.unsupported(f"activation '{other}'")
    last = (batch, channels, length + kernel - 1)
    return result, c(Slice((0, 0, length), last, (1, 1, 1)), seen)


@maps("Col2Im")
def col2im(c: Context) -> Value:
    image, block = c.const_ints(1), c.const_ints(2)
    strides, dilations = per_axis(c, "strides", image), per_axis(c, "dilations", image)
    return c(Col2Im(image, block, strides, explicit_pads(c, image), dilations), c.input(0))


def _kernel(c: Context) -> Shape:
    """The kernel's extents, which the filters have and `kernel_shape` may repeat."""
    kernel = c.type(1).shape[2:]
    declared = c.attr("kernel_shape")
    if declared and tuple(declared) != kernel:
        c.unsupported(f"kernel_shape {list(declared)} with filters of {list(kernel)}")
    return kernel


def _with_bias(c: Context, value: Value, bias: Value | None) -> Value:
    """The value with one number per channel added."""
    if bias is None:
        return value
    ones = (1,) * (len(value.tensor_type.shape) - 2)
    return c(Add(), value, c(Reshape((1, bias.tensor_type.size, *ones)), bias))
