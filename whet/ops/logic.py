"""Comparisons, truth values, bits, and the choice between two values."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from whet.core.dtypes import (
    ALL,
    FLOATS,
    INTEGERS,
    NUMERIC,
    DType,
    bool_,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
)
from whet.core.types import Array
from whet.ir.expr import Expr, binary, call, const, equal, select
from whet.ops.base import Domain, NoAlgebra, law, operator
from whet.ops.shared.elementwise import Elementwise, associates, commutes

ORDER = NoAlgebra("stated as laws of less and less_equal")
SPECIAL = NoAlgebra("only special values are told apart")
BITS = NoAlgebra("bit patterns take no part in rewrites")


class Comparison(Elementwise):
    """Base: two numbers to a truth value; false when either is NaN."""

    gives = bool_


@operator("equal", "x", "y")
class Equal(Comparison):
    """x == y."""

    accepts = (*NUMERIC, bool_)

    def formula(self, x: Expr, y: Expr) -> Expr:
        return equal(x, y)

    numpy = staticmethod(np.equal)
    axioms = (commutes("equal"),)


@operator("less", "x", "y")
class Less(Comparison):
    """x < y."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x < y

    numpy = staticmethod(np.less)
    axioms = (law("less(x, y) = greater(y, x)", "exact", x=(2, 3), y=(2, 3)),)


@operator("less_equal", "x", "y")
class LessEqual(Comparison):
    """x <= y."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x <= y

    numpy = staticmethod(np.less_equal)
    axioms = (law("less_equal(x, y) = greater_equal(y, x)", "exact", x=(2, 3), y=(2, 3)),)


@operator("greater", "x", "y")
class Greater(Comparison):
    """x > y."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x > y

    numpy = staticmethod(np.greater)
    axioms = ORDER


@operator("greater_equal", "x", "y")
class GreaterEqual(Comparison):
    """x >= y."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x >= y

    numpy = staticmethod(np.greater_equal)
    axioms = ORDER


# ------------------------------------------------------------------------------- truth values
class Logical(Elementwise):
    """Base: truth values to a truth value."""

    accepts = (bool_,)


@operator("logical_and", "x", "y")
class LogicalAnd(Logical):
    """True where both are."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x & y

    numpy = staticmethod(np.logical_and)
    axioms = (
        commutes("logical_and"),
        associates("logical_and"),
        law("logical_and(x, x) = x", "exact", x=(2, 3)),
    )


@operator("logical_or", "x", "y")
class LogicalOr(Logical):
    """True where one is or both are."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x | y

    numpy = staticmethod(np.logical_or)
    axioms = (
        commutes("logical_or"),
        associates("logical_or"),
        law("logical_or(x, logical_and(x, y)) = x", "exact", x=(2, 3), y=(2, 3)),
    )


@operator("logical_xor", "x", "y")
class LogicalXor(Logical):
    """True where exactly one is."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return binary("ne", x, y)

    numpy = staticmethod(np.logical_xor)
    axioms = (
        commutes("logical_xor"),
        law("logical_xor(logical_xor(x, y), y) = x", "exact", x=(2, 3), y=(2, 3)),
    )


@operator("logical_not", "x")
class LogicalNot(Logical):
    """True where x is false."""

    def formula(self, x: Expr) -> Expr:
        return call("not", x)

    numpy = staticmethod(np.logical_not)
    axioms = (
        law("logical_not(logical_not(x)) = x", "exact", x=(2, 3)),
        law("logical_not(logical_and(x, y)) = logical_or(logical_not(x), logical_not(y))",
            "exact", x=(2, 3), y=(2, 3)),
    )  # fmt: skip


# --------------------------------------------------------------------------------------- bits
class Bitwise(Elementwise):
    """Base: a function of `ir.functions` on the bits of integers."""

    accepts = INTEGERS
    function: ClassVar[str]
    axioms = BITS

    def formula(self, *operands: Expr) -> Expr:
        return call(self.function, *operands)


@operator("bit_and", "x", "y")
class BitAnd(Bitwise):
    """The bits that both have."""

    function = "bitand"
    numpy = staticmethod(np.bitwise_and)


@operator("bit_or", "x", "y")
class BitOr(Bitwise):
    """The bits that either has."""

    function = "bitor"
    numpy = staticmethod(np.bitwise_or)


@operator("bit_xor", "x", "y")
class BitXor(Bitwise):
    """The bits in which they differ."""

    function = "bitxor"
    numpy = staticmethod(np.bitwise_xor)


@operator("bit_not", "x")
class BitNot(Bitwise):
    """All bits flipped."""

    function = "invert"
    numpy = staticmethod(np.invert)


@operator("shift_left", "x", "y")
class ShiftLeft(Bitwise):
    """The bits of x moved up by y places; 0 when y is the width of the type or more."""

    function = "shiftleft"
    domains = (None, Domain(0, 7))
    numpy = staticmethod(np.left_shift)


@operator("shift_right", "x", "y")
class ShiftRight(Bitwise):
    """The bits of x moved down by y places, keeping the sign."""

    function = "shiftright"
    domains = (None, Domain(0, 7))
    numpy = staticmethod(np.right_shift)


# ------------------------------------------------------------------------------ special values
class FloatTest(Elementwise):
    """Base: a question about a floating-point number."""

    accepts = (*FLOATS, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz)
    gives = bool_
    axioms = SPECIAL


@operator("isnan", "x")
class IsNan(FloatTest):
    """True where x is not a number."""

    def formula(self, x: Expr) -> Expr:
        return call("isnan", x)

    numpy = staticmethod(np.isnan)


@operator("isinf", "x")
class IsInf(FloatTest):
    """True where x is infinite, of the signs that are asked for."""

    positive: bool = True
    negative: bool = True

    def formula(self, x: Expr) -> Expr:
        if self.positive and self.negative:
            return call("isinf", x)
        if self.positive:
            return call("isinf", x) & (x > 0)
        if self.negative:
            return call("isinf", x) & (x < 0)
        return const(False, bool_)

    def numpy(self, x: Array) -> Array:
        found = np.zeros(x.shape, np.bool_)
        if self.positive:
            found |= x == np.inf
        if self.negative:
            found |= x == -np.inf
        return found

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls(negative=False), cls(positive=False), cls(False, False))


# ------------------------------------------------------------------------------------- choice
@operator("where", "condition", "x", "y")
class Where(Elementwise):
    """x where the condition holds, else y."""

    accepts = ALL
    widens = False

    @classmethod
    def operand_dtypes(cls, dtype: DType) -> tuple[DType, ...]:
        return (bool_, dtype, dtype)

    def formula(self, condition: Expr, x: Expr, y: Expr) -> Expr:
        return select(condition, x, y)

    @staticmethod
    def numpy(condition: Array, x: Array, y: Array) -> Array:
        return np.where(condition, x, y)

    axioms = (
        law("where(c, x, x) = x", "exact", c=(2, 3), x=(2, 3)),
        law("where(logical_not(c), x, y) = where(c, y, x)", "exact", c=(2, 3), x=(2, 3), y=(2, 3)),
        law("add(where(c, x, y), z) = where(c, add(x, z), add(y, z))", "exact",
            c=(2, 3), x=(2, 3), y=(2, 3), z=(2, 3)),
    )  # fmt: skip
