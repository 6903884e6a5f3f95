"""ONNX optimizer steps (ai.onnx.preview.training)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.core.dtypes import i64
from whet.frontend.onnx.mapping import Context, maps
from whet.graph.graph import Value
from whet.ops.arithmetic import Add, Div, Mul, Pow, Sqrt, Sub
from whet.ops.casting import Cast
from whet.ops.logic import Greater, Where
from whet.ops.shared.precision import scalar

DOMAIN = "ai.onnx.preview.training"


class _Step:
    """One optimizer step: its numbers, and arithmetic on tensors and Python numbers."""

    def __init__(self, c: Context) -> None:
        self.c = c
        self.rate = c.input(0)
        self.started = c(Greater(), c.input(1), c.constant(0, i64))
        self.count = c(Cast(self.rate.tensor_type.dtype), c.input(1))

    def number(self, name: str, default: float) -> Value:
        return scalar(self.c.builder, float(self.c.attr(name, default)), self.rate)

    def tensors(self, kinds: int) -> list[tuple[Value, ...]]:
        """The inputs of each optimized tensor: they are listed kind by kind."""
        values = [self.c.input(n) for n in range(2, len(self.c.inputs))]
        count = len(values) // kinds
        self.c.require(bool(values) and len(values) == count * kinds, "tensors are missing")
        return [tuple(values[n::count]) for n in range(count)]

    def regularized(self, x: Value, gradient: Value) -> Value:
        factor = self.number("norm_coefficient", 0.0)
        return self.c(Add(), self.c(Mul(), factor, x), gradient)

    def complement(self, x: Value) -> Value:
        return self.c(Sub(), scalar(self.c.builder, 1, x), x)


def _by_kind(results: Sequence[tuple[Value, ...]]) -> tuple[Value, ...]:
    return tuple(value for kind in zip(*results, strict=True) for value in kind)


@maps("Adagrad", domain=DOMAIN)
def adagrad(c: Context) -> tuple[Value, ...]:
    step = _Step(c)
    decay = c(Mul(), step.count, step.number("decay_factor", 0.0))
    rate = c(Div(), step.rate, c(Add(), scalar(c.builder, 1, decay), decay))
    results = []
    for x, gradient, squares in step.tensors(3):
        g = step.regularized(x, gradient)
        total = c(Add(), squares, c(Mul(), g, g))
        spread = c(Add(), c(Sqrt(), total), step.number("epsilon", 1e-6))
        results.append((c(Sub(), x, c(Div(), c(Mul(), rate, g), spread)), total))
    return _by_kind(results)


@maps("Adam", domain=DOMAIN)
def adam(c: Context) -> tuple[Value, ...]:
    step = _Step(c)
    alpha, beta = step.number("alpha", 0.9), step.number("beta", 0.999)
    root = c(Sqrt(), step.complement(c(Pow(), beta, step.count)))
    adjusted = c(Div(), c(Mul(), step.rate, root), step.complement(c(Pow(), alpha, step.count)))
    rate = c(Where(), step.started, adjusted, step.rate)
    kept = step.complement(step.number("norm_coefficient_post", 0.0))

    def average(weight: Value, old: Value, new: Value) -> Value:
        return c(Add(), c(Mul(), weight, old), c(Mul(), step.complement(weight), new))

    results = []
    for x, gradient, momentum, squares in step.tensors(4):
        g = step.regularized(x, gradient)
        new_momentum = average(alpha, momentum, g)
        new_squares = average(beta, squares, c(Mul(), g, g))
        spread = c(Add(), c(Sqrt(), new_squares), step.number("epsilon", 1e-6))
        moved = c(Sub(), x, c(Div(), c(Mul(), rate, new_momentum), spread))
        results.append((c(Mul(), kept, moved), new_momentum, new_squares))
    return _by_kind(results)


@maps("Momentum", domain=DOMAIN)
def momentum(c: Context) -> tuple[Value, ...]:
    step = _Step(c)
    alpha = step.number("alpha", 0.0)
    first = scalar(c.builder, 1, step.rate)
    beta = c(Where(), step.started, step.number("beta", 0.0), first)
    directions: dict[str, Callable[[Value, Value], Value]] = {
        "standard": lambda g, new: new,
        "nesterov": lambda g, new: c(Add(), g, c(Mul(), alpha, new)),
    }
    mode = c.attr("mode")
    if mode not in directions:
        c.unsupported(f"mode '{mode}'")
    results = []
    for x, gradient, old in step.tensors(3):
        g = step.regularized(x, gradient)
        new = c(Add(), c(Mul(), alpha, old), c(Mul(), beta, g))
        results.append((c(Sub(), x, c(Mul(), step.rate, directions[mode](g, new))), new))
    return _by_kind(results)
