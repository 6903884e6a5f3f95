"""ONNX element-wise operators: arithmetic, logic and activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from whet.core.dtypes import f64
from whet.frontend.onnx.mapping import Context, direct, maps
from whet.graph.graph import Value
from whet.ops.activation import (
    Celu,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    PRelu,
    Relu,
    Selu,
    Shrink,
    Sigmoid,
    Softplus,
    Softsign,
    Swish,
    ThresholdedRelu,
)
from whet.ops.arithmetic import (
    Abs,
    Acos,
    Acosh,
    Add,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Div,
    Erf,
    Exp,
    Floor,
    Log,
    Maximum,
    Minimum,
    Mod,
    Mul,
    Neg,
    Pow,
    Reciprocal,
    Round,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Sub,
    Tan,
    Tanh,
)
from whet.ops.base import Op
from whet.ops.casting import Cast
from whet.ops.logic import (
    BitAnd,
    BitNot,
    BitOr,
    BitXor,
    Equal,
    Greater,
    GreaterEqual,
    IsInf,
    IsNan,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    LogicalXor,
    ShiftLeft,
    ShiftRight,
    Where,
)

SAME_INPUTS: dict[str, type[Op]] = {
    "Abs": Abs,
    "Acos": Acos,
    "Acosh": Acosh,
    "Asin": Asin,
    "Asinh": Asinh,
    "Atan": Atan,
    "Atanh": Atanh,
    "BitwiseAnd": BitAnd,
    "BitwiseNot": BitNot,
    "BitwiseOr": BitOr,
    "BitwiseXor": BitXor,
    "Ceil": Ceil,
    "Cos": Cos,
    "Cosh": Cosh,
    "Erf": Erf,
    "Exp": Exp,
    "Floor": Floor,
    "GreaterOrEqual": GreaterEqual,
    "HardSwish": HardSwish,
    "IsNaN": IsNan,
    "LessOrEqual": LessEqual,
    "Log": Log,
    "Mish": Mish,
    "Neg": Neg,
    "Not": LogicalNot,
    "Reciprocal": Reciprocal,
    "Relu": Relu,
    "Round": Round,
    "Sigmoid": Sigmoid,
    "Sign": Sign,
    "Sin": Sin,
    "Sinh": Sinh,
    "Softplus": Softplus,
    "Softsign": Softsign,
    "Sqrt": Sqrt,
    "Tan": Tan,
    "Tanh": Tanh,
    "Where": Where,
}
for _name, _op in SAME_INPUTS.items():
    direct(_name, _op)

BROADCASTING: dict[str, type[Op]] = {
    "Add": Add,
    "And": LogicalAnd,
    "Div": Div,
    "Equal": Equal,
    "Greater": Greater,
    "Less": Less,
    "Mul": Mul,
    "Or": LogicalOr,
    "Sub": Sub,
    "Xor": LogicalXor,
}
"""Two inputs that broadcast as in NumPy, which they do from opset 7 on."""
for _name, _op in BROADCASTING.items():
    direct(_name, _op, since=7)


# ------------------------------------------------------------------------- several inputs
def _fold(c: Context, op: Op) -> Value:
    """op(op(op(x0, x1), x2), ...)."""
    return reduce(lambda x, y: c(op, x, y), (c.input(n) for n in range(len(c.inputs))))


def _variadic(name: str, op: Op) -> None:
    maps(name)(lambda c: _fold(c, op))


_variadic("Sum", Add())
_variadic("Max", Maximum())
_variadic("Min", Minimum())


@maps("Mean")
def mean(c: Context) -> Value:
    return c(Div(), _fold(c, Add()), c.constant(len(c.inputs), c.type(0).dtype))


# ----------------------------------------------------------------------------- attributes
def _with_attributes(name: str, op: Callable[..., Op], *names: str) -> None:
    """One input, and attributes that the operator has under the same names and defaults."""

    def convert(c: Context) -> Value:
        given: dict[str, Any] = {n: c.attr(n) for n in names if c.attr(n) is not None}
        return c(op(**given), c.input(0))

    maps(name)(convert)


_with_attributes("Celu", Celu, "alpha")
_with_attributes("Elu", Elu, "alpha")
_with_attributes("HardSigmoid", HardSigmoid, "alpha", "beta")
_with_attributes("LeakyRelu", LeakyRelu, "alpha")
_with_attributes("Selu", Selu, "alpha", "gamma")
_with_attributes("Swish", Swish, "alpha")
_with_attributes("ThresholdedRelu", ThresholdedRelu, "alpha")


@maps("Gelu")
def gelu(c: Context) -> Value:
    approximate = c.attr("approximate", "none")
    if approximate not in ("none", "tanh"):
        c.unsupported(f"approximate='{approximate}'")
    return c(Gelu(approximate), c.input(0))


@maps("SwiGLU")
def swiglu(c: Context) -> Value:
    return c(Mul(), c(Swish(c.attr("alpha", 1.0)), c.input(0)), c.input(1))


@maps("PRelu", since=7)
def prelu(c: Context) -> Value:
    result = c(PRelu(), c.input(0), c.input(1))
    if result.tensor_type.shape != c.type(0).shape:
        c.unsupported(f"a slope of shape {list(c.type(1).shape)} for {c.type(0)}")
    return result


@maps("Shrink")
def shrink(c: Context) -> Value:
    op = Shrink(c.attr("bias", 0.0), c.attr("lambd", 0.5))
    x, dtype = c.input(0), c.type(0).dtype
    if dtype.is_float:
        return c(op, x)
    return c(Cast(dtype), c(op, c(Cast(f64), x)))


@maps("Mod")
def mod(c: Context) -> Value:
    return c(Mod(bool(c.attr("fmod", 0))), c.input(0), c.input(1))


@maps("Pow", since=7)
def power(c: Context) -> Value:
    """The result has the type of the base, whatever the exponent's."""
    x, y = c.input(0), c.input(1)
    base, exponent = c.type(0).dtype, c.type(1).dtype
    if exponent.is_float and not base.is_float:
        return c(Cast(base), c(Pow(), c(Cast(f64), x), c(Cast(f64), y)))
    if exponent != base:
        y = c(Cast(base), y)
    return c(Pow(), x, y)


@maps("BitShift")
def bit_shift(c: Context) -> Value:
    op = ShiftLeft() if c.attr("direction") == "LEFT" else ShiftRight()
    return c(op, c.input(0), c.input(1))


@maps("IsInf")
def is_inf(c: Context) -> Value:
    op = IsInf(bool(c.attr("detect_positive", 1)), bool(c.attr("detect_negative", 1)))
    return c(op, c.input(0))


# ------------------------------------------------------------------------------- clipping
def _clipped(c: Context, low: Value | None, high: Value | None) -> Value:
    x = c.input(0)
    if low is not None:
        x = c(Maximum(), x, low)
    if high is not None:
        x = c(Minimum(), x, high)
    return x


@maps("Clip")
def clip_to_attributes(c: Context) -> Value:
    dtype = c.type(0).dtype
    bounds = (c.attr("min"), c.attr("max"))
    low, high = (None if b is None else c.constant(b, dtype) for b in bounds)
    return _clipped(c, low, high)


@maps("Clip", since=11)
def clip_to_inputs(c: Context) -> Value:
    return _clipped(c, c.optional(1), c.optional(2))


@maps("Binarizer", domain="ai.onnx.ml")
def binarizer(c: Context) -> Value:
    dtype = c.type(0).dtype
    above = c(Greater(), c.input(0), c.constant(c.attr("threshold", 0.0), dtype))
    return c(Cast(dtype), above)
