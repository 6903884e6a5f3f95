"""The scalar functions that expressions may use: name, meaning in NumPy, spelling in text.

This table is the only place that says which functions exist; the evaluator, the printer and
every code generator read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.types import Array

Numeric = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Infix:
    """A binary operator: its symbol, binding strength and NumPy meaning."""

    symbol: str
    precedence: int
    numpy: Numeric
    gives_bool: bool = False


# Rational approximations of the error function (W. J. Cody, Math. Comp. 23, 1969), highest power
# first: erf(x) / x in x**2 near zero, and exp(x**2) * erfc(x) in x elsewhere.
_ERF_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2,
     3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
     2.84423683343917062e3),
)  # fmt: skip
_ERF_FAR = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0,
     6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
     1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3,
     3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip


def erf(x: Array) -> Array:
    """The error function to the last digits of double precision (NumPy has none)."""
    wide = np.asarray(x, dtype=np.float64)
    size = np.minimum(np.abs(wide), 6.0)  # erf(6) is 1 in double precision
    square = size * size
    near = wide * np.polyval(_ERF_NEAR[0], square) / np.polyval(_ERF_NEAR[1], square)
    tail = np.exp(-square) * np.polyval(_ERF_FAR[0], size) / np.polyval(_ERF_FAR[1], size)
    result = np.where(size < 0.46875, near, np.copysign(1.0 - tail, wide))
    return result.astype(np.asarray(x).dtype)


def _truncated_quotient(a: Array, b: Array) -> Array:
    """Integer division toward zero, as C and ONNX define it (NumPy's floors)."""
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & ((np.asarray(a) < 0) != (np.asarray(b) < 0))
    return np.where(inexact, quotient + np.ones_like(quotient), quotient)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow for large negative x."""
    e = np.exp(-np.abs(x))
    return np.where(np.asarray(x) >= 0, 1 / (1 + e), e / (1 + e)).astype(np.asarray(x).dtype)


def _root_power(x: Array) -> Array:
    """x to the power of 0.5: unlike the square root, inf at -inf and 0.0 at -0.0."""
    return np.where(np.isneginf(x), np.inf, np.sqrt(x + 0.0))


def tf32(x: Array) -> Array:
    """Rounds to 10 bits behind the point, halves away from zero: all that tensor cores see of
    factors in single precision."""
    single = np.asarray(x, np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(single), rounded.view(np.float32), single)


TF32_ROUNDING = 1 + 2.0**-11 / (2 * math.log(2))
"""What a number of 23 bits behind the point is multiplied by before all but 10 are cut off.

That takes half of the last bit on average, 2**-11 of a power of two, which is this part of a number
whose logarithm may be anything.  The error of products is then within 3 % of that of rounded
factors, numbers of 10 bits stay as they are, and one multiplication is half of what rounding takes.
"""


def tf32_cut(x: Array) -> Array:
    """Cuts off all but 10 bits behind the point, as tensor cores do."""
    single = np.asarray(x, np.float32)
    return (single.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


# exp_near and reciprocal_near are enough for what is rounded to 10 bits afterwards: relative errors
# are about (|x| + 2) * 2**-24 and 2**-23, and numbers below the smallest normal one are zero.

_ROUNDED_POWERS: dict[float, Numeric] = {2.0: np.square, 0.5: _root_power, -1.0: np.reciprocal}


def power(x: Array, y: Array) -> Array:
    """x to the power of y, as C defines it; squares, roots and reciprocals are rounded correctly.

    NumPy and C's libraries are off by a bit in some of these.  Fixing them makes the cheaper ways
    to compute powers with a known exponent the same to the bit.
    """
    result = np.power(x, y)
    if result.dtype.kind != "f":
        return result
    with np.errstate(all="ignore"):  # some of what is computed here is not asked for
        for exponent, rounded in _ROUNDED_POWERS.items():
            result = np.where(np.equal(y, exponent), rounded(np.asarray(x)), result)
    return result.astype(np.asarray(x).dtype)


INFIX: dict[str, Infix] = {
    "add": Infix("+", 5, np.add),
    "sub": Infix("-", 5, np.subtract),
    "mul": Infix("*", 6, np.multiply),
    "div": Infix("/", 6, np.true_divide),
    "floordiv": Infix("//", 6, np.floor_divide),
    "mod": Infix("%", 6, np.mod),
    "lt": Infix("<", 3, np.less, gives_bool=True),
    "le": Infix("<=", 3, np.less_equal, gives_bool=True),
    "gt": Infix(">", 3, np.greater, gives_bool=True),
    "ge": Infix(">=", 3, np.greater_equal, gives_bool=True),
    "eq": Infix("==", 3, np.equal, gives_bool=True),
    "ne": Infix("!=", 3, np.not_equal, gives_bool=True),
    "and": Infix("and", 2, np.logical_and, gives_bool=True),
    "or": Infix("or", 1, np.logical_or, gives_bool=True),
}

FUNCTIONS: dict[str, Numeric] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "sigmoid": _sigmoid,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "tf32": tf32,
    "tf32_cut": tf32_cut,
    "exp_near": np.exp,
    "reciprocal_near": np.reciprocal,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "not": np.logical_not,
    "invert": np.invert,
    "pow": power,
    "min": np.minimum,
    "max": np.maximum,
    "truncdiv": _truncated_quotient,
    "truncmod": np.fmod,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shiftleft": np.left_shift,
    "shiftright": np.right_shift,
}

SLOTS = {
    "div": 8, "floordiv": 97, "mod": 97, "truncdiv": 97, "truncmod": 97, "sqrt": 10, "exp": 12,
    "log": 23, "tanh": 14, "sigmoid": 16, "erf": 16, "pow": 280, "sin": 125, "cos": 125, "tan": 440,
    "asin": 205, "acos": 265, "atan": 275, "sinh": 590, "cosh": 340, "asinh": 665, "acosh": 630,
    "atanh": 660, "exp_near": 4, "reciprocal_near": 4,
}  # fmt: skip
"""What an operator or a function costs per vector, in multiply-adds, where it is not one.

Measured with `bench/functions.py` on an AMD EPYC, Zen 4 with AVX-512, 2026-11-16; within a tenth of
what it shows.  Those that are near are of GPUs, and have a quarter of the rate of multiply-adds.
"""

COSTLY = frozenset(name for name in FUNCTIONS if SLOTS.get(name, 1) >= SLOTS["exp"])
"""Functions that are dearer to repeat than to store."""

PREDICATES = frozenset({"isnan", "isinf", "not"})
"""Functions whose result is a truth value whatever their argument's type."""

REDUCERS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}
ARG_REDUCERS: dict[str, Callable[..., Any]] = {"argmax": np.argmax, "argmin": np.argmin}
