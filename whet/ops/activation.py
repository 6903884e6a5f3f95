"""Activation functions: one formula each, with ONNX's default parameters."""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np

from whet.core.dtypes import FLOATS
from whet.core.types import Array
from whet.ir.expr import Expr, call, select
from whet.ir.functions import erf
from whet.ops.arithmetic import SIGNED
from whet.ops.base import Domain, NoAlgebra, law, operator
from whet.ops.shared.elementwise import Elementwise, idempotent, moves_through, odd

ROOT_2 = math.sqrt(2.0)
ROOT_2_OVER_PI = math.sqrt(2.0 / math.pi)

OPAQUE = NoAlgebra("piecewise, with parameters: no identity that a rewrite could use")


class Activation(Elementwise):
    """Base: a function of one floating-point number, sampled on both sides of its bends."""

    accepts = FLOATS
    domains = (Domain(-5.0, 5.0),)


@operator("relu", "x")
class Relu(Activation):
    """max(x, 0)."""

    accepts = SIGNED

    def formula(self, x: Expr) -> Expr:
        return call("max", x, 0)

    @staticmethod
    def numpy(x: Array) -> Array:
        return np.maximum(x, 0)

    axioms = (
        idempotent("relu"),
        law("relu(x) = maximum(x, 0)", "exact", x=(2, 3)),
        law("relu(maximum(x, y)) = maximum(relu(x), relu(y))", "exact", x=(2, 3), y=(2, 3)),
        law("relu(minimum(x, y)) = minimum(relu(x), relu(y))", "exact", x=(2, 3), y=(2, 3)),
        law("sub(relu(x), relu(neg(x))) = x", "real", x=(2, 3)),
        law("add(relu(x), relu(neg(x))) = abs(x)", "real", x=(2, 3)),
        law("relu(mul(x, abs(y))) = mul(relu(x), abs(y))", "real", x=(2, 3), y=(2, 3)),
        *moves_through("relu", "x"),
    )


@operator("sigmoid", "x")
class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    def formula(self, x: Expr) -> Expr:
        return call("sigmoid", x)

    @staticmethod
    def numpy(x: Array) -> Array:
        return np.reciprocal(1 + np.exp(-x))

    axioms = (
        law("sigmoid(x) = reciprocal(add(exp(neg(x)), 1))", "real", x=(2, 3)),
        law("sigmoid(neg(x)) = sub(1, sigmoid(x))", "real", x=(2, 3)),
        law("tanh(x) = sub(mul(sigmoid(mul(x, 2)), 2), 1)", "real", x=(2, 3)),
        *moves_through("sigmoid", "x"),
    )


@operator("leaky_relu", "x")
class LeakyRelu(Activation):
    """x, or alpha * x where x is negative."""

    alpha: float = 0.01

    def formula(self, x: Expr) -> Expr:
        return select(x < 0, x * self.alpha, x)

    def numpy(self, x: Array) -> Array:
        return np.maximum(x, 0) + self.alpha * np.minimum(x, 0)

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls(alpha=0.3))

    axioms = (
        law("leaky_relu(x, alpha=0.25) = maximum(x, mul(x, 0.25))", "exact", x=(2, 3)),
        *moves_through("leaky_relu", "x"),
    )


@operator("elu", "x")
class Elu(Activation):
    """x, or alpha * (exp(x) - 1) where x is negative."""

    alpha: float = 1.0

    def formula(self, x: Expr) -> Expr:
        return select(x < 0, (call("exp", x) - 1) * self.alpha, x)

    def numpy(self, x: Array) -> Array:
        return np.maximum(x, 0) + self.alpha * np.expm1(np.minimum(x, 0))

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls(alpha=0.5))

    axioms = OPAQUE


@operator("selu", "x")
class Selu(Activation):
    """gamma * x, or gamma * alpha * (exp(x) - 1) where x is negative."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def formula(self, x: Expr) -> Expr:
        return select(x < 0, (call("exp", x) - 1) * self.alpha, x) * self.gamma

    def numpy(self, x: Array) -> Array:
        return self.gamma * (np.maximum(x, 0) + self.alpha * np.expm1(np.minimum(x, 0)))

    axioms = (law("selu(x, alpha=1.0, gamma=1.0) = elu(x)", "real", x=(2, 3)),)


@operator("celu", "x")
class Celu(Activation):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float = 1.0

    def formula(self, x: Expr) -> Expr:
        bend = (call("exp", x / self.alpha) - 1) * self.alpha
        return call("max", x, 0) + call("min", bend, 0)

    def numpy(self, x: Array) -> Array:
        return np.where(x > 0, x, self.alpha * np.expm1(x / self.alpha))

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls(alpha=2.0))

    axioms = OPAQUE


@operator("thresholded_relu", "x")
class ThresholdedRelu(Activation):
    """x where it is above alpha, else 0."""

    alpha: float = 1.0

    def formula(self, x: Expr) -> Expr:
        return select(x > self.alpha, x, 0)

    def numpy(self, x: Array) -> Array:
        return np.where(x > self.alpha, x, 0)

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls(alpha=-0.5))

    axioms = OPAQUE


@operator("hard_sigmoid", "x")
class HardSigmoid(Activation):
    """alpha * x + beta, kept between 0 and 1."""

    alpha: float = 0.2
    beta: float = 0.5

    def formula(self, x: Expr) -> Expr:
        return call("max", call("min", x * self.alpha + self.beta, 1), 0)

    def numpy(self, x: Array) -> Array:
        return np.clip(self.alpha * x + self.beta, 0, 1)

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls(alpha=1 / 6))

    axioms = OPAQUE


@operator("hard_swish", "x")
class HardSwish(Activation):
    """x * (x / 6 + 0.5 kept between 0 and 1)."""

    def formula(self, x: Expr) -> Expr:
        return x * call("max", call("min", x * (1 / 6) + 0.5, 1), 0)

    @staticmethod
    def numpy(x: Array) -> Array:
        return x * np.clip(x / 6 + 0.5, 0, 1)

    axioms = (
        law(f"hard_swish(x) = mul(x, hard_sigmoid(x, alpha={1 / 6!r}, beta=0.5))", "real",
            x=(2, 3)),
        *moves_through("hard_swish", "x"),
    )  # fmt: skip


@operator("gelu", "x")
class Gelu(Activation):
    """x times the normal distribution function of x, or its approximation by tanh."""

    approximate: Literal["none", "tanh"] = "none"

    def formula(self, x: Expr) -> Expr:
        if self.approximate == "none":
            return x * 0.5 * (call("erf", x * (1 / ROOT_2)) + 1)
        return x * 0.5 * (call("tanh", (x + x * x * x * 0.044715) * ROOT_2_OVER_PI) + 1)

    def numpy(self, x: Array) -> Array:
        if self.approximate == "none":
            return x / 2 + x / 2 * erf(x / ROOT_2)
        # (1 + tanh(u)) / 2 is the logistic function of 2u.
        return x / (1 + np.exp(-2 * ROOT_2_OVER_PI * (x + 0.044715 * x * x * x)))

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls("tanh"))

    axioms = (
        law(f"gelu(x) = mul(mul(x, 0.5), add(erf(div(x, {ROOT_2!r})), 1))", "real", x=(2, 3)),
        law("sub(gelu(x), gelu(neg(x))) = x", "real", x=(2, 3)),
        *moves_through("gelu", "x"),
    )


@operator("mish", "x")
class Mish(Activation):
    """x * tanh(softplus(x))."""

    def formula(self, x: Expr) -> Expr:
        return x * call("tanh", softplus(x))

    @staticmethod
    def numpy(x: Array) -> Array:
        return x * np.tanh(np.logaddexp(x, 0))

    axioms = (
        law("mish(x) = mul(x, tanh(softplus(x)))", "real", x=(2, 3)),
        *moves_through("mish", "x"),
    )


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), without overflow for large x.

    Where 1 + e is rounded, the logarithm is that of a neighbour; what was lost is added again, so
    that small results keep their digits.
    """
    e = call("exp", -call("abs", x))
    total = e + 1
    lost = e - (total - 1)
    return call("max", x, 0) + (call("log", total) + lost)


@operator("softplus", "x")
class Softplus(Activation):
    """log(1 + exp(x))."""

    def formula(self, x: Expr) -> Expr:
        return softplus(x)

    @staticmethod
    def numpy(x: Array) -> Array:
        return np.logaddexp(x, 0)

    axioms = (
        law("softplus(x) = log(add(exp(x), 1))", "real", x=(2, 3)),
        law("sub(softplus(x), softplus(neg(x))) = x", "real", x=(2, 3)),
        law("softplus(neg(x)) = neg(log(sigmoid(x)))", "real", x=(2, 3)),
    )


@operator("softsign", "x")
class Softsign(Activation):
    """x / (1 + |x|)."""

    def formula(self, x: Expr) -> Expr:
        return x / (call("abs", x) + 1)

    @staticmethod
    def numpy(x: Array) -> Array:
        return x / (1 + np.abs(x))

    axioms = (
        odd("softsign", "exact"),
        law("softsign(x) = div(x, add(abs(x), 1))", "exact", x=(2, 3)),
    )


@operator("swish", "x")
class Swish(Activation):
    """x * sigmoid(alpha * x); also called SiLU."""

    alpha: float = 1.0

    def formula(self, x: Expr) -> Expr:
        return x * call("sigmoid", x * self.alpha)

    def numpy(self, x: Array) -> Array:
        return x / (1 + np.exp(-self.alpha * x))

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls(alpha=1.702))

    axioms = (
        law("swish(x) = mul(x, sigmoid(x))", "real", x=(2, 3)),
        *moves_through("swish", "x"),
    )


@operator("shrink", "x")
class Shrink(Activation):
    """x moved by `bias` toward zero, and 0 where it is within `lambd` of zero."""

    bias: float = 0.0
    lambd: float = 0.5

    def formula(self, x: Expr) -> Expr:
        above = select(x > self.lambd, x - self.bias, 0)
        return select(x < -self.lambd, x + self.bias, above)

    def numpy(self, x: Array) -> Array:
        return np.where(np.abs(x) > self.lambd, x - np.sign(x) * self.bias, 0)

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (cls(), cls(bias=1.5, lambd=1.5))

    axioms = OPAQUE


@operator("prelu", "x", "slope")
class PRelu(Elementwise):
    """x, or slope * x where x is negative."""

    def formula(self, x: Expr, slope: Expr) -> Expr:
        return select(x < 0, x * slope, x)

    @staticmethod
    def numpy(x: Array, slope: Array) -> Array:
        return np.where(x < 0, slope * x, x)

    axioms = (
        law("prelu(x, y) = add(relu(x), mul(y, neg(relu(neg(x)))))", "real", x=(2, 3), y=(2, 3)),
        *moves_through("prelu", "x", "y"),
    )
