"""Element-wise operators: one number at a time, operands broadcast."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.graph_fuzz.families.ranges import nonzero, within
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import FLOATS, INTEGERS, bool_
from whet.core.types import Shape

DOMAINS = {
    "Acos": (-1, 1), "Acosh": (1, math.inf), "Asin": (-1, 1), "Atanh": (-0.97, 0.97),
    "Cosh": (-8, 8), "Exp": (-20, 12), "Log": (1e-3, math.inf), "Reciprocal": (0.1, math.inf),
    "Sinh": (-8, 8), "Sqrt": (0, math.inf), "Tan": (-1.4, 1.4),
}  # fmt: skip
"""Where a function has a meaning and is not so steep that every error is large."""


@generates(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh",
    "Erf", "Exp", "Floor", "HardSwish", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
)  # fmt: skip
def unary(g: Growth, name: str) -> Held:
    dtypes = (bool_,) if name == "Not" else g.types(name)
    low, high = DOMAINS.get(name, (-math.inf, math.inf))
    return g.emit(name, within(g, g.tensor(dtypes), low, high))


@generates("IsNaN", "IsInf")
def is_special(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name, "T1"))
    flags: dict[str, Any] = {}
    if name == "IsInf":
        flags = {k: g.draw.pick([None, 0, 1]) for k in ("detect_positive", "detect_negative")}
    return g.emit(name, v, **flags)


SETTINGS: dict[str, dict[str, tuple[float, float]]] = {
    "Celu": {"alpha": (0.25, 2)}, "Elu": {"alpha": (0.25, 2)},
    "HardSigmoid": {"alpha": (0.1, 0.5), "beta": (0.25, 0.75)}, "LeakyRelu": {"alpha": (-0.5, 0.9)},
    "Selu": {"alpha": (0.5, 2), "gamma": (0.5, 2)}, "Swish": {"alpha": (0.5, 2)},
    "ThresholdedRelu": {"alpha": (-1, 1)},
}  # fmt: skip


@generates(*SETTINGS)
def with_settings(g: Growth, name: str) -> Held:
    numbers: dict[str, Any] = {
        k: None if g.draw.chance(0.4) else _eighths(g, low, high)
        for k, (low, high) in SETTINGS[name].items()
    }
    return g.emit(name, g.tensor(g.types(name)), **numbers)


def _eighths(g: Growth, low: float, high: float) -> float:
    """A number in the range, sometimes one that binary fractions cannot express."""
    number = float(g.draw.rng.uniform(low, high))
    return round(number * 8) / 8 if g.draw.chance(0.7) else number


@generates("Gelu")
def gelu(g: Growth, name: str) -> Held:
    return g.emit(name, g.tensor(g.types(name)), approximate=g.draw.pick([None, "none", "tanh"]))


@generates("Shrink")
def shrink(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    bias, limit = (_eighths(g, -1, 1), _eighths(g, 0, 1)) if v.dtype.is_float else (1.0, 2.0)
    return g.emit(name, v, bias=bias, lambd=limit)


# --------------------------------------------------------------------------- several operands
def broadcast_shape(g: Growth, shape: Shape) -> Shape:
    """A shape that broadcasts with this one, mostly to this one."""
    drawn = tuple(1 if g.draw.chance(0.3) else d for d in shape)
    if drawn and g.draw.chance(0.3):
        drawn = drawn[g.draw.integer(1, len(drawn)) :]
    return drawn


def partner(g: Growth, v: Held) -> Held:
    """Another operand: the same value, one that broadcasts with it, or a new one."""
    fitting = [
        u for u in g.visible()[-30:]
        if u.dtype == v.dtype and u is not v and _broadcasts(u.shape, v.shape)
    ]  # fmt: skip
    if fitting and g.draw.chance(0.55):
        return g.draw.pick(fitting)
    if g.draw.chance(0.08):
        return v
    grown = v.shape
    if g.draw.chance(0.1) and v.size < 200:
        grown = (*g.shape(1, extent=5), *(g.shape(1, extent=7)[0] if d == 1 else d for d in grown))
    return g.same(v.dtype, grown if g.draw.chance(0.45) else broadcast_shape(g, grown))


def _broadcasts(a: Shape, b: Shape) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def _ordered(g: Growth, *operands: Held) -> tuple[Held, ...]:
    return operands if g.draw.chance(0.6) else operands[::-1]


@generates("Add", "Sub", "Mul")
def arithmetic(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    return g.emit(name, *_ordered(g, v, partner(g, v)))


COMPARED = {"Equal": "T", "Greater": "T", "Less": "T", "GreaterOrEqual": "T", "LessOrEqual": "T",
            "And": "T", "Or": "T", "Xor": "T", "BitwiseAnd": "T", "BitwiseOr": "T",
            "BitwiseXor": "T"}  # fmt: skip


@generates(*COMPARED)
def compared(g: Growth, name: str) -> Held:
    allowed = (bool_,) if name in ("And", "Or", "Xor") else g.types(name, COMPARED[name])
    v = g.tensor(allowed)
    return g.emit(name, *_ordered(g, v, partner(g, v)))


@generates("Div")
def div(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    return g.emit(name, v, nonzero(g, partner(g, v)))


@generates("Mod")
def mod(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    fmod = 1 if v.dtype.is_float else g.draw.pick([None, 0, 1])
    return g.emit(name, v, nonzero(g, partner(g, v)), fmod=fmod)


@generates("Pow")
def power(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    exponents = [d for d in g.types(name, "T1" if g.opset >= 12 else "T")
                 if g.opset >= 12 or d == v.dtype]  # fmt: skip
    dtype = g.dtype(exponents)
    shape = broadcast_shape(g, v.shape)
    if dtype.is_integer or not v.dtype.is_float:
        signed = dtype.kind != "uint" and not v.dtype.is_float and not g.common
        least = -2 if signed and g.draw.chance(0.3) else 0
        array = g.draw.rng.integers(least, 4, shape).astype(dtype.numpy)
    else:
        v = within(g, v, 0.1, 50)
        array = g.draw.pick([
            g.array(dtype, shape), np.full(shape, g.draw.pick([0.5, 2.0, -1.0, 3.0])),
        ]).astype(dtype.numpy)  # fmt: skip
    return g.emit(name, v, g.operand(array))


@generates("BitShift")
def bit_shift(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    shape = broadcast_shape(g, v.shape)
    most = 3 * v.dtype.bits if not g.common and g.draw.chance(0.3) else v.dtype.bits
    shifts = g.draw.rng.integers(0, most, shape).astype(v.dtype.numpy)
    return g.emit(name, v, g.operand(shifts), direction=g.draw.pick(["LEFT", "RIGHT"]))


@generates("PRelu")
def prelu(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    return g.emit(name, v, g.same(v.dtype, broadcast_shape(g, v.shape)))


@generates("SwiGLU")
def swiglu(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    return g.emit(name, v, g.same(v.dtype, v.shape), alpha=g.draw.pick([None, 1.5]))


@generates("Sum", "Max", "Min", "Mean")
def variadic(g: Growth, name: str) -> Held:
    operands = [g.tensor(g.types(name))]
    shape = operands[0].shape
    for _ in range(g.draw.integer(0, 3)):
        other = partner(g, operands[0])
        if _broadcasts(other.shape, shape):
            operands.append(other)
            shape = np.broadcast_shapes(shape, other.shape)
    return g.emit(name, *operands)


@generates("Where")
def where(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    other = partner(g, v)
    shape = np.broadcast_shapes(v.shape, other.shape)
    condition = g.tensor((bool_,), where=lambda c: _broadcasts(c.shape, shape),
                         shape=lambda: broadcast_shape(g, shape))  # fmt: skip
    return g.emit(name, condition, *_ordered(g, v, other))


@generates("Clip")
def clip(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    low, high = sorted(g.draw.integer(-12, 12) / (8 if v.dtype.is_float else 1) for _ in range(2))
    if v.dtype.kind == "uint":
        low, high = abs(low), abs(low) + abs(high)
    if g.opset < 11:
        limits = [None if g.draw.chance(0.2) else float(x) for x in (low, high)]
        return g.emit(name, v, min=limits[0], max=limits[1])
    bounds = [None if g.draw.chance(0.2) else g.operand(np.asarray(x).astype(v.dtype.numpy))
              for x in (low, high)]  # fmt: skip
    return g.emit(name, v, *bounds)


@generates("Binarizer", domain="ai.onnx.ml")
def binarizer(g: Growth, name: str) -> Held:
    v = g.tensor([d for d in g.types(name, "T", "ai.onnx.ml") if d in (*FLOATS, *INTEGERS)])
    if not v.size:
        raise Impossible
    return g.emit(name, v, domain="ai.onnx.ml", threshold=g.draw.pick([None, 0.5, 1.0]))
