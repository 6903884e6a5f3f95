"""Reductions in registers: the loops and statements that add up the terms of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.core.dtypes import i64
from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Reduce, Var, as_expr, binary, call, const, select
from whet.ir.program import Buffer, LoopKind, Stmt, Store
from whet.schedule.program.loops import identity_element, loop

UNROLL_LIMIT = 32
"""So many terms of a reduction are written out at most, where nothing else is said."""


def loop_kinds(axes: Sequence[Axis], limit: int = UNROLL_LIMIT) -> tuple[LoopKind, ...]:
    """Kinds of the loops of a reduction: the inner ones out, up to the limit."""
    kinds: list[LoopKind] = []
    terms = 1
    for axis in reversed(axes):
        terms *= axis.extent
        kinds.append("unroll" if terms <= limit else "serial")
    return tuple(reversed(kinds))


class Accumulator:
    """The registers and statements of one reduction over a tile."""

    def __init__(
        self, number: int, reduce: Reduce, shape: tuple[int, ...], at: tuple[Expr, ...],
        limit: int = UNROLL_LIMIT,
    ) -> None:  # fmt: skip
        self.reduce, self.at, self.limit = reduce, at, limit
        self.value = Buffer(f"acc{number}", shape, reduce.value.dtype, scope="register")
        self.registers = [self.value]
        self.is_arg = reduce.kind.startswith("arg")
        if self.is_arg:
            self.position = Buffer(f"at{number}", shape, i64, scope="register")
            self.registers.append(self.position)
        self.result: Expr = (self.position if self.is_arg else self.value)[at]

    def statements(self, env: dict[Expr, Expr], tile: Callable[..., Stmt]) -> list[Stmt]:
        """Initialisation and the loops of the reduction."""
        axes = self.reduce.axes
        variables = {a: Var(f"{self.value.name}_{a.name}") for a in axes}
        where: dict[Expr, Expr] = {**env}
        where.update(variables.items())
        value = substitute(self.reduce.value, where)
        start = [Store(self.value, self.at, identity_element(self.reduce.kind, self.value.dtype))]
        if self.is_arg:
            start.append(Store(self.position, self.at, const(0, i64)))
        update = tile(*self.update(value, [(variables[a], a.extent) for a in axes]))
        for axis, kind in zip(reversed(axes), reversed(loop_kinds(axes, self.limit))):
            update = loop(variables[axis], axis.extent, update, kind=kind)
        return [tile(*start), update]

    def update(self, value: Expr, position: list[tuple[Var, int]]) -> list[Stmt]:
        acc = self.value[self.at]
        if not self.is_arg:
            return [Store(self.value, self.at, combine(self.reduce.kind, acc, value))]
        index: Expr = as_expr(0)
        for var, extent in position:
            index = index * extent + var
        better = takes_over(self.reduce.kind, value, acc)
        return [
            Store(self.position, self.at, select(better, index, self.position[self.at])),
            Store(self.value, self.at, select(better, value, acc)),
        ]


def combine(kind: str, a: Expr, b: Expr) -> Expr:
    """One step of a reduction."""
    match kind:
        case "sum":
            return a + b
        case "prod":
            return a * b
        case "any" | "all":
            return binary("or" if kind == "any" else "and", a, b)
    return call(kind, a, b)


def takes_over(kind: str, value: Expr, best: Expr) -> Expr:
    """Whether an arg-reduction goes on with a value instead of the best one before it.

    NaN is better than any number, and the first of equals stays, as in NumPy.
    """
    if not value.dtype.is_float:
        return value > best if kind == "argmax" else value < best
    worse = value <= best if kind == "argmax" else value >= best
    return call("not", worse) & call("not", call("isnan", best))
