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


def _erf(x: Array) -> Array:
    """Error function by its series for small |x| and a continued fraction's fit elsewhere.

    NumPy has no erf; math.erf is exact to the last digit, and this is reference code.
    """
    flat = np.asarray(x, dtype=np.float64)
    out = np.fromiter((math.erf(v) for v in flat.ravel()), dtype=np.float64, count=flat.size)
    return out.reshape(flat.shape).astype(np.asarray(x).dtype)


def _truncated_quotient(a: Array, b: Array) -> Array:
    """Integer division toward zero, as C and ONNX define it (NumPy's floors)."""
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & ((np.asarray(a) < 0) != (np.asarray(b) < 0))
    return np.where(inexact, quotient + np.ones_like(quotient), quotient)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow for large negative x."""
    e = np.exp(-np.abs(x))
    return np.where(np.asarray(x) >= 0, 1 / (1 + e), e / (1 + e)).astype(np.asarray(x).dtype)


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
    "erf": _erf,
    "sigmoid": _sigmoid,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "not": np.logical_not,
    "invert": np.invert,
    "pow": np.power,
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
