"""Arithmetic: the functions of one number and the operations on two."""

from __future__ import annotations

from typing import Self

import numpy as np

from whet.core.dtypes import FLOATS, INTEGERS, NUMERIC
from whet.core.types import Array
from whet.ir.expr import Expr, call, equal, select
from whet.ir.functions import erf, power
from whet.ops.base import Domain, NoAlgebra, law, operator
from whet.ops.shared.elementwise import (
    Elementwise,
    ScalarFunction,
    associates,
    commutes,
    even,
    idempotent,
    moves_through,
    moves_with_broadcast,
    moves_with_scalar,
    odd,
    reorders_vectors,
)

SIGNED = (*FLOATS, *(d for d in INTEGERS if d.kind == "int"))
UNIT = (Domain(-0.99, 0.99),)


# ------------------------------------------------------------------------------ of one number
@operator("neg", "x")
class Neg(ScalarFunction):
    """-x."""

    accepts = SIGNED
    numpy = staticmethod(np.negative)
    axioms = (law("neg(neg(x)) = x", "exact", x=(2, 3)), *moves_through("neg", "x"))


@operator("abs", "x")
class Abs(ScalarFunction):
    """The magnitude of x."""

    accepts = NUMERIC
    numpy = staticmethod(np.abs)
    axioms = (
        even("abs", "exact"),
        idempotent("abs"),
        law("abs(mul(x, y)) = mul(abs(x), abs(y))", "exact", x=(2, 3), y=(2, 3)),
        law("abs(x) = maximum(x, neg(x))", "real", x=(2, 3)),
    )


@operator("sign", "x")
class Sign(ScalarFunction):
    """-1, 0 or 1."""

    accepts = NUMERIC
    numpy = staticmethod(np.sign)
    axioms = (
        odd("sign"),
        idempotent("sign"),
        law("mul(sign(x), abs(x)) = x", "real", x=(2, 3)),
    )


@operator("exp", "x")
class Exp(ScalarFunction):
    """e to the power of x."""

    numpy = staticmethod(np.exp)
    axioms = (
        law("exp(add(x, y)) = mul(exp(x), exp(y))", "real", x=(2, 3), y=(2, 3)),
        law("exp(neg(x)) = reciprocal(exp(x))", "real", x=(2, 3)),
        *moves_through("exp", "x"),
    )


@operator("log", "x")
class Log(ScalarFunction):
    """The natural logarithm."""

    domains = (Domain(0.1, 8.0),)
    numpy = staticmethod(np.log)
    axioms = (
        law("log(exp(x)) = x", "real", x=(2, 3)),
        law("exp(log(x)) = x", "real", when=("x > 0",), x=(2, 3)),
        law("log(mul(x, y)) = add(log(x), log(y))", "real", when=("x > 0", "y > 0"),
            x=(2, 3), y=(2, 3)),
    )  # fmt: skip


@operator("sqrt", "x")
class Sqrt(ScalarFunction):
    """The square root."""

    domains = (Domain(0.0, 8.0),)
    numpy = staticmethod(np.sqrt)
    axioms = (
        law("sqrt(mul(x, x)) = abs(x)", "real", x=(2, 3)),
        law("sqrt(mul(x, y)) = mul(sqrt(x), sqrt(y))", "real", when=("x >= 0", "y >= 0"),
            x=(2, 3), y=(2, 3)),
    )  # fmt: skip


@operator("reciprocal", "x")
class Reciprocal(Elementwise):
    """1 / x."""

    accepts = FLOATS
    domains = (Domain(0.25, 4.0),)

    def formula(self, x: Expr) -> Expr:
        return 1 / x

    numpy = staticmethod(np.reciprocal)
    axioms = (
        odd("reciprocal", "exact"),
        law("reciprocal(reciprocal(x)) = x", "real", when=("x != 0",), x=(2, 3)),
        law("reciprocal(mul(x, y)) = mul(reciprocal(x), reciprocal(y))", "real",
            when=("x != 0", "y != 0"), x=(2, 3), y=(2, 3)),
        law("reciprocal(x) = div(1, x)", "exact", when=("x != 0",), x=(2, 3)),
    )  # fmt: skip


@operator("floor", "x")
class Floor(ScalarFunction):
    """The largest integer that is not above x."""

    numpy = staticmethod(np.floor)
    axioms = (
        idempotent("floor"),
        law("floor(neg(x)) = neg(ceil(x))", "exact", x=(2, 3)),
    )


@operator("ceil", "x")
class Ceil(ScalarFunction):
    """The smallest integer that is not below x."""

    numpy = staticmethod(np.ceil)
    axioms = (idempotent("ceil"),)


@operator("round", "x")
class Round(ScalarFunction):
    """The nearest integer, halves to the even one."""

    domains = (Domain(-6.0, 6.0),)
    numpy = staticmethod(np.rint)
    axioms = (odd("round", "exact"), idempotent("round"))


@operator("sin", "x")
class Sin(ScalarFunction):
    """Sine."""

    numpy = staticmethod(np.sin)
    axioms = (
        odd("sin"),
        law("sin(add(x, y)) = add(mul(sin(x), cos(y)), mul(cos(x), sin(y)))", "real",
            x=(2, 3), y=(2, 3)),
    )  # fmt: skip


@operator("cos", "x")
class Cos(ScalarFunction):
    """Cosine."""

    numpy = staticmethod(np.cos)
    axioms = (
        even("cos"),
        law("cos(add(x, y)) = sub(mul(cos(x), cos(y)), mul(sin(x), sin(y)))", "real",
            x=(2, 3), y=(2, 3)),
    )  # fmt: skip


@operator("tan", "x")
class Tan(ScalarFunction):
    """Tangent."""

    domains = (Domain(-1.4, 1.4),)
    numpy = staticmethod(np.tan)
    axioms = (odd("tan"), law("tan(x) = div(sin(x), cos(x))", "real", x=(2, 3)))


@operator("asin", "x")
class Asin(ScalarFunction):
    """Inverse sine."""

    domains = UNIT
    numpy = staticmethod(np.arcsin)
    axioms = (odd("asin"),)


@operator("acos", "x")
class Acos(ScalarFunction):
    """Inverse cosine."""

    domains = UNIT
    numpy = staticmethod(np.arccos)
    axioms = NoAlgebra("its identities need the constant pi")


@operator("atan", "x")
class Atan(ScalarFunction):
    """Inverse tangent."""

    numpy = staticmethod(np.arctan)
    axioms = (odd("atan"),)


@operator("sinh", "x")
class Sinh(ScalarFunction):
    """Hyperbolic sine."""

    numpy = staticmethod(np.sinh)
    axioms = (odd("sinh"), law("sinh(x) = sub(exp(x), cosh(x))", "real", x=(2, 3)))


@operator("cosh", "x")
class Cosh(ScalarFunction):
    """Hyperbolic cosine."""

    numpy = staticmethod(np.cosh)
    axioms = (even("cosh"),)


@operator("tanh", "x")
class Tanh(ScalarFunction):
    """Hyperbolic tangent."""

    numpy = staticmethod(np.tanh)
    axioms = (
        odd("tanh"),
        law("tanh(x) = div(sinh(x), cosh(x))", "real", x=(2, 3)),
        *moves_through("tanh", "x"),
    )


@operator("asinh", "x")
class Asinh(ScalarFunction):
    """Inverse hyperbolic sine."""

    numpy = staticmethod(np.arcsinh)
    axioms = (odd("asinh"), law("asinh(sinh(x)) = x", "real", x=(2, 3)))


@operator("acosh", "x")
class Acosh(ScalarFunction):
    """Inverse hyperbolic cosine."""

    domains = (Domain(1.1, 4.0),)
    numpy = staticmethod(np.arccosh)
    axioms = (law("acosh(cosh(x)) = abs(x)", "real", x=(2, 3)),)


@operator("atanh", "x")
class Atanh(ScalarFunction):
    """Inverse hyperbolic tangent."""

    domains = UNIT
    numpy = staticmethod(np.arctanh)
    axioms = (odd("atanh"), law("atanh(tanh(x)) = x", "real", x=(2, 3)))


@operator("erf", "x")
class Erf(ScalarFunction):
    """The error function."""

    numpy = staticmethod(erf)
    axioms = (odd("erf"), *moves_through("erf", "x"))


# ----------------------------------------------------------------------------- of two numbers
@operator("add", "x", "y")
class Add(Elementwise):
    """x + y."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x + y

    numpy = staticmethod(np.add)
    axioms = (
        commutes("add"),
        law("add(x, 0) = x", "real", x=(2, 3)),
        associates("add", "real"),
        *reorders_vectors("add"),
        *moves_through("add", "x", "y"),
        *moves_with_scalar("add"),
        *moves_with_broadcast("add"),
    )


@operator("sub", "x", "y")
class Sub(Elementwise):
    """x - y."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x - y

    numpy = staticmethod(np.subtract)
    axioms = (
        law("sub(x, y) = add(x, neg(y))", "exact", x=(2, 3), y=(2, 3)),
        law("sub(x, 0) = x", "exact", x=(2, 3)),
        *moves_through("sub", "x", "y"),
        *moves_with_scalar("sub"),
    )


@operator("mul", "x", "y")
class Mul(Elementwise):
    """x * y."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x * y

    numpy = staticmethod(np.multiply)
    axioms = (
        commutes("mul"),
        law("mul(x, 1) = x", "exact", x=(2, 3)),
        associates("mul", "real"),
        *reorders_vectors("mul"),
        *(
            law("mul(add(x, a), b) = add(mul(x, b), mul(a, b))", "real", x=x, a=(3,), b=(3,))
            for x in ((2, 3), (2, 2, 3), (2, 1, 2, 3))
        ),
        law("mul(add(x, y), z) = add(mul(x, z), mul(y, z))", "real",
            x=(2, 3), y=(2, 3), z=(2, 3)),
        law("mul(neg(x), y) = neg(mul(x, y))", "exact", x=(2, 3), y=(2, 3)),
        # The same with a single number as a factor.
        law("mul(x, s) = mul(s, x)", "exact", x=(2, 3), s=()),
        law("mul(mul(x, y), s) = mul(x, mul(y, s))", "real", x=(2, 3), y=(2, 3), s=()),
        law("mul(mul(x, s), t) = mul(x, mul(s, t))", "real", x=(2, 3), s=(), t=()),
        law("mul(add(x, y), s) = add(mul(x, s), mul(y, s))", "real", x=(2, 3), y=(2, 3), s=()),
        *moves_through("mul", "x", "y"),
        *moves_with_scalar("mul"),
        *moves_with_broadcast("mul"),
    )  # fmt: skip


@operator("div", "x", "y")
class Div(Elementwise):
    """x / y; integers are divided toward zero."""

    domains = (None, Domain(1, 8))

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x / y if x.dtype.is_float else call("truncdiv", x, y)

    @staticmethod
    def numpy(x: Array, y: Array) -> Array:
        if x.dtype.kind == "f":
            return np.true_divide(x, y)
        # What remains after the truncated remainder is taken away divides without rest.
        return np.floor_divide(x - np.fmod(x, y), y)

    axioms = (
        law("div(x, 1) = x", "exact", x=(2, 3)),
        law("div(x, y) = mul(x, reciprocal(y))", "real", when=("y != 0",), x=(2, 3), y=(2, 3)),
        law("div(add(x, y), z) = add(div(x, z), div(y, z))", "real", when=("z != 0",),
            x=(2, 3), y=(2, 3), z=(2, 3)),
        *moves_through("div", "x", "y"),
        *moves_with_scalar("div"),
    )  # fmt: skip


@operator("mod", "x", "y")
class Mod(Elementwise):
    """The remainder of x / y: with the sign of y, or with `fmod` that of x."""

    fmod: bool = False

    domains = (None, Domain(1, 8))

    def formula(self, x: Expr, y: Expr) -> Expr:
        return call("truncmod", x, y) if self.fmod else x % y

    def numpy(self, x: Array, y: Array) -> Array:
        return np.fmod(x, y) if self.fmod else np.mod(x, y)

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls(fmod=True))

    axioms = NoAlgebra("remainders appear in index arithmetic, which folds away")


@operator("pow", "x", "y")
class Pow(Elementwise):
    """x to the power of y; a negative integer power is the truncated fraction.

    Powers of 2, 0.5 and -1 are rounded correctly; others may be off by the last bit.
    """

    domains = (Domain(0.2, 3.0), Domain(-2, 4))

    def formula(self, x: Expr, y: Expr) -> Expr:
        if x.dtype.kind != "int":
            return call("pow", x, y)
        alternating = select(equal(y % 2, 0), 1, x)
        fraction = select(equal(call("abs", x), 1), alternating, 0)
        return select(y < 0, fraction, call("pow", x, call("max", y, 0)))

    @staticmethod
    def numpy(x: Array, y: Array) -> Array:
        if x.dtype.kind != "i":
            return power(x, y)
        fraction = np.where(np.abs(x) == 1, np.power(x, np.abs(y) % 2), 0)
        return np.where(y < 0, fraction, np.power(x, np.maximum(y, 0)))

    axioms = (
        law("pow(x, 1) = x", "exact", x=(2, 3)),
        law("pow(x, 2) = mul(x, x)", "exact", x=(2, 3)),
        law("pow(x, 0.5) = sqrt(x)", "real", when=("x >= 0",), x=(2, 3)),
        law("mul(pow(x, y), pow(x, z)) = pow(x, add(y, z))", "real", when=("x > 0",),
            x=(2, 3), y=(2, 3), z=(2, 3)),
    )  # fmt: skip


@operator("minimum", "x", "y")
class Minimum(Elementwise):
    """The smaller of two numbers; NaN if either is (of two zeros, any)."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return call("min", x, y)

    numpy = staticmethod(np.minimum)
    axioms = (
        commutes("minimum"),
        associates("minimum"),
        law("minimum(x, x) = x", "exact", x=(2, 3)),
        law("minimum(x, y) = neg(maximum(neg(x), neg(y)))", "exact", x=(2, 3), y=(2, 3)),
        *moves_through("minimum", "x", "y"),
        *moves_with_scalar("minimum"),
    )


@operator("maximum", "x", "y")
class Maximum(Elementwise):
    """The larger of two numbers; NaN if either is (of two zeros, any)."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return call("max", x, y)

    numpy = staticmethod(np.maximum)
    axioms = (
        commutes("maximum"),
        associates("maximum"),
        law("maximum(x, x) = x", "exact", x=(2, 3)),
        law("maximum(x, minimum(x, y)) = x", "real", when=("shape(x) == shape(y)",),
            x=(2, 3), y=(2, 3)),
        law("maximum(minimum(x, y), z) = minimum(maximum(x, z), maximum(y, z))", "exact",
            x=(2, 3), y=(2, 3), z=(2, 3)),
        law("add(maximum(x, y), z) = maximum(add(x, z), add(y, z))", "real",
            x=(2, 3), y=(2, 3), z=(2, 3)),
        *moves_through("maximum", "x", "y"),
        *moves_with_scalar("maximum"),
    )  # fmt: skip
