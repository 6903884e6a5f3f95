"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from whet.core.dtypes import NUMERIC, compute_dtype, dtype_of, f32, i64
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, Var, cast, const
from whet.ir.program import Allocate, Buffer, Loop, Program, Stmt, Store
from whet.ops.base import NoAlgebra, Op, Sample, law, operator, require


@dataclass(frozen=True)
class Running(Op):
    """Base: element n combines elements 0..n along the axis.

    `exclusive` leaves element n itself out, `reverse` starts from the other end.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False

    numpy: ClassVar[Callable[..., Any]]
    neutral: ClassVar[int]

    def combine(self, total: Expr, element: Expr) -> Expr:
        raise NotImplementedError

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype in NUMERIC, self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(0 <= self.axis < x.rank, self, f"axis {self.axis} does not exist", x,
                code="WH1104")  # fmt: skip
        return x

    def reference(self, x: Array) -> Array:
        wide = x.astype(compute_dtype(dtype_of(x)).numpy, copy=False)
        forward = np.flip(wide, self.axis) if self.reverse else wide
        result = self.numpy(forward, axis=self.axis, dtype=wide.dtype)
        if self.exclusive:
            inclusive = np.moveaxis(result, self.axis, 0)
            result = np.full_like(result, self.neutral)
            np.moveaxis(result, self.axis, 0)[1:] = inclusive[:-1]
        result = np.flip(result, self.axis) if self.reverse else result
        return np.asarray(result).astype(x.dtype, copy=False)

    def program(self, x: TensorType) -> Program:
        inner = compute_dtype(x.dtype)
        source, target = Buffer("x", x.shape, x.dtype), Buffer("y", x.shape, x.dtype)
        total = Buffer("total", (), inner)
        at = [Var(f"i{n}") for n in range(x.rank)]
        step = at[self.axis]
        place: list[Expr] = list(at)
        if self.reverse:
            place[self.axis] = const(x.shape[self.axis] - 1, i64) - step
        indices = tuple(place)
        grow = Store(total, (), self.combine(total[()], cast(source[indices], inner)))
        emit = Store(target, indices, cast(total[()], x.dtype))
        along: Stmt = Loop(step, const(x.shape[self.axis], i64),
                           (emit, grow) if self.exclusive else (grow, emit))  # fmt: skip
        body: tuple[Stmt, ...] = (
            Allocate(total, (Store(total, (), const(self.neutral, inner)), along)),
        )
        for n in reversed(range(x.rank)):
            if n != self.axis:
                body = (Loop(at[n], const(x.shape[n], i64), body),)
        return Program(self.name, (source,), (target,), body)

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(1), (TensorType((3, 5), f32),)),
            Sample(cls(0, exclusive=True, reverse=True), (TensorType((4, 2), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        rank = int(rng.integers(1, 4))
        shape = tuple(int(d) for d in rng.integers(1, 6, rank))
        op = cls(int(rng.integers(rank)), bool(rng.integers(2)), bool(rng.integers(2)))
        return Sample(op, (TensorType(shape, f32),))


@operator("cumsum", "x")
class CumSum(Running):
    """Running sum along the axis."""

    neutral = 0
    numpy = staticmethod(np.cumsum)

    def combine(self, total: Expr, element: Expr) -> Expr:
        return total + element

    axioms = (
        law("cumsum(add(x, y), axis=1) = add(cumsum(x, axis=1), cumsum(y, axis=1))", "real",
            when=("shape(x) == shape(y)",), x=(2, 3), y=(2, 3)),
    )  # fmt: skip


@operator("cumprod", "x")
class CumProd(Running):
    """Running product along the axis."""

    neutral = 1
    numpy = staticmethod(np.cumprod)

    def combine(self, total: Expr, element: Expr) -> Expr:
        return total * element

    axioms = NoAlgebra("a running product distributes over nothing that rewrites use")
