"""Linear algebra beyond products."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import FLOATS, compute_dtype, f32, f64, i64
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, Var, call, cast, const
from whet.ir.program import Allocate, Buffer, If, Let, Loop, Program, Stmt, Store
from whet.ops.base import NoAlgebra, Op, Sample, operator, require
from whet.ops.shared.precision import widen


@operator("det", "x")
class Det(Op):
    """The determinant of the matrices in the last two axes."""

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype in FLOATS, self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(x.rank >= 2 and x.shape[-1] == x.shape[-2], self, "matrices are not square", x)
        return x.with_shape(x.shape[:-2])

    def reference(self, x: Array) -> Array:
        return np.asarray(np.linalg.det(widen(x))).astype(x.dtype)

    def program(self, x: TensorType) -> Program:
        """Gaussian elimination with row pivots; the determinant is the product of the pivots."""
        inner, n = compute_dtype(x.dtype), x.shape[-1]
        source = Buffer("x", x.shape, x.dtype)
        target = Buffer("y", x.shape[:-2], x.dtype)
        work, result = Buffer("work", (n, n), inner), Buffer("result", (), inner)
        pivot = Buffer("pivot", (), i64)
        batch = tuple(Var(f"b{axis}") for axis in range(x.rank - 2))
        size: Expr = const(n, i64)
        row, column, k, below = Var("row"), Var("column"), Var("k"), Var("below")
        r: Expr = k + 1 + below

        element = cast(source[(*batch, row, column)], inner)
        copy = Loop(row, size, (Loop(column, size, (Store(work, (row, column), element),)),))
        find = Loop(below, size - 1 - k, (If(
            call("abs", work[r, k]) > call("abs", work[pivot[()], k]),
            (Store(pivot, (), r),)),))  # fmt: skip
        kept, factor = Var("kept", inner), Var("factor", inner)
        swap = If(pivot[()] > k, (
            Store(result, (), -result[()]),
            Loop(column, size, (Let(kept, work[k, column], (
                Store(work, (k, column), work[pivot[()], column]),
                Store(work, (pivot[()], column), kept))),)),
        ))  # fmt: skip
        eliminate = If(call("abs", work[k, k]) > 0, (
            Loop(below, size - 1 - k, (Let(factor, work[r, k] / work[k, k], (
                Loop(column, size, (
                    Store(work, (r, column), work[r, column] - factor * work[k, column]),)),)),)),
        ))  # fmt: skip
        step = Loop(k, size, (
            Store(pivot, (), k), find, swap,
            Store(result, (), result[()] * work[k, k]), eliminate))  # fmt: skip
        body: tuple[Stmt, ...] = (
            Store(result, (), const(1, inner)), copy, step,
            Store(target, batch, cast(result[()], x.dtype)),
        )  # fmt: skip
        for buffer in (pivot, result, work):
            body = (Allocate(buffer, body),)
        for variable, extent in reversed(list(zip(batch, x.shape))):
            body = (Loop(variable, const(extent, i64), body),)
        return Program("det", (source,), (target,), body)

    axioms = NoAlgebra("no other operator preserves determinants")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(), (TensorType((3, 3), f32),)),
            Sample(cls(), (TensorType((2, 2, 4, 4), f64),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        batch = tuple(int(d) for d in rng.integers(1, 3, int(rng.integers(0, 3))))
        n = int(rng.integers(1, 5))
        return Sample(cls(), (TensorType((*batch, n, n), f64),))
