"""Choosing and reordering elements by value or by length."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import NUMERIC, f32, i64
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, Var, as_expr, call, cast, select
from whet.ir.program import Allocate, Buffer, If, Let, Loop, Program, Stmt, Store, While
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import Domain, NoAlgebra, Op, Sample, operator, require
from whet.ops.gather import require_indices
from whet.ops.movement import random_shape


@operator("top_k", "x")
class TopK(Op):
    """The k largest (or smallest) elements along `axis`, best first, and their positions.

    Of equal elements the one that comes first is taken first.  NaN counts as larger than any
    number.
    """

    axis: int
    k: int
    largest: bool = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(0 <= self.axis < x.rank, self, f"axis {self.axis} is outside the rank", x,
                code="WH1104")  # fmt: skip
        require(0 <= self.k <= x.shape[self.axis], self,
                f"k = {self.k} exceeds axis {self.axis}", x, code="WH1104")  # fmt: skip
        require(x.dtype in NUMERIC, self, f"no order on {x.dtype}", x, code="WH1103")
        out = x.with_shape((*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :]))
        return out, out.with_dtype(i64)

    def reference(self, x: Array) -> tuple[Array, Array]:
        if self.largest:
            # A stable ascending order of the reversed row, read backwards, puts the first of
            # equals first; negating the values would overflow.
            backward = np.flip(x, self.axis)
            order = np.argsort(backward, axis=self.axis, kind="stable")
            order = x.shape[self.axis] - 1 - np.flip(order, self.axis)
        else:
            order = np.argsort(x, axis=self.axis, kind="stable")
        position = np.take(order, np.arange(self.k), axis=self.axis).astype(np.int64)
        return np.take_along_axis(x, position, axis=self.axis), position

    def _precedes(self, a: Expr, b: Expr) -> Expr:
        """Whether a belongs before b when it comes after it in the input."""
        if not a.dtype.is_float:
            return b < a if self.largest else a < b
        a_nan, b_nan = call("isnan", a), call("isnan", b)
        if self.largest:
            return (b < a) | (a_nan & call("not", b_nan))
        return (a < b) | (b_nan & call("not", a_nan))

    def program(self, x: TensorType) -> Program:
        """Insertion into a sorted list of k places, for each row along the axis."""
        out_type, position_type = self.infer(x)
        source = Buffer("x", x.shape, x.dtype)
        values = Buffer("values", out_type.shape, out_type.dtype)
        positions = Buffer("positions", position_type.shape, i64)
        free = Buffer("free", (1,), i64)  # the place that the new element may take
        outer = [Var(f"i{n}") for n in range(x.rank)]
        j = Var("j")
        item = Var("item", x.dtype)
        zero = as_expr(0)

        def at(place: Expr) -> tuple[Expr, ...]:
            return (*outer[: self.axis], place, *outer[self.axis + 1 :])

        before = free[0] + (-1)
        move: tuple[Stmt, ...] = (
            If(
                free[0] < self.k,
                (
                    Store(values, at(free[0]), values[at(before)]),
                    Store(positions, at(free[0]), positions[at(before)]),
                ),
            ),
            Store(free, (zero,), before),
        )
        must_move = (zero < free[0]) & self._precedes(item, values[at(before)])
        insert = Let(
            item,
            source[at(j)],
            (
                Store(free, (zero,), call("min", j, self.k)),
                While(must_move, move),
                If(
                    free[0] < self.k,
                    (Store(values, at(free[0]), item), Store(positions, at(free[0]), j)),
                ),
            ),
        )
        stmt: Stmt = Loop(j, as_expr(x.shape[self.axis]), (insert,))
        for n in reversed(range(x.rank)):
            if n != self.axis:
                stmt = Loop(outer[n], as_expr(x.shape[n]), (stmt,))
        body: tuple[Stmt, ...] = (Allocate(free, (stmt,)),) if self.k else ()
        return Program(self.name, (source,), (values, positions), body)

    axioms = NoAlgebra("which elements are chosen depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(1, 3), (TensorType((3, 5), f32),)),
            Sample(cls(0, 2, False), (TensorType((6, 2), i64),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 1, 3)
        axis = int(rng.integers(len(shape)))
        op = cls(axis, int(rng.integers(0, shape[axis] + 1)), bool(rng.integers(2)))
        dtype = NUMERIC[int(rng.integers(len(NUMERIC)))]
        return Sample(op, (TensorType(shape, dtype),))


@operator("reverse_sequence", "x", "lengths")
class ReverseSequence(Op):
    """The first lengths[b] elements along `time_axis` backwards, for each b on `batch_axis`."""

    time_axis: int
    batch_axis: int

    def infer(self, x: TensorType, lengths: TensorType) -> TensorType:
        require_indices(self, lengths)
        axes = {self.time_axis, self.batch_axis}
        require(len(axes) == 2 and axes <= set(range(x.rank)), self,
                f"axes {sorted(axes)} do not fit the rank", x, code="WH1104")  # fmt: skip
        require(lengths.shape == (x.shape[self.batch_axis],), self,
                "one length is needed for every batch", x, lengths)  # fmt: skip
        return x

    def reference(self, x: Array, lengths: Array) -> Array:
        out = x.copy()
        read = np.moveaxis(x, (self.batch_axis, self.time_axis), (0, 1))
        write = np.moveaxis(out, (self.batch_axis, self.time_axis), (0, 1))
        for batch, length in enumerate(lengths):
            write[batch, :length] = read[batch, :length][::-1]
        return out

    def compute(self, x: Tensor, lengths: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            time = i[self.time_axis]
            length = cast(lengths[i[self.batch_axis]], i64)
            at = select(time < length, length - time + (-1), time)
            return x[(*i[: self.time_axis], at, *i[self.time_axis + 1 :])]

        return compute(x.shape, body, "reverse_sequence")

    axioms = NoAlgebra("which elements are read depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        types = (TensorType((4, 3), f32), TensorType((3,), i64))
        return (Sample(cls(0, 1), types, (None, Domain(0, 5))),)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 2, 4)
        time, batch = (int(a) for a in rng.permutation(len(shape))[:2])
        types = (TensorType(shape, f32), TensorType((shape[batch],), i64))
        return Sample(cls(time, batch), types, (None, Domain(0, shape[time] + 1)))
