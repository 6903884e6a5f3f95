"""The rows of a tile of keys: exponentials of scores by the maximum so far, and their sum.

Threads that share a row are lanes of one warp, as many as there are for each row of a block, so
that they need no shared memory to meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from whet.core.dtypes import f32
from whet.ir.affine import substitute
from whet.ir.expr import Expr, Read, Var, as_expr, const, equal, select
from whet.ir.program import Block, Buffer, If, Stmt, Store
from whet.schedule.families.gpu_attention.match import AttentionTiling
from whet.schedule.families.gpu_contraction.match import VECTOR
from whet.schedule.families.gpu_reduce.across import Neighbours, in_pairs
from whet.schedule.families.gpu_running.match import RunningAttention
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import combine
from whet.schedule.program.loops import loop

LOWEST = const(-math.inf, f32)
_ZERO = as_expr(0)


def lanes_of_row(form: RunningAttention, t: AttentionTiling) -> int:
    """Threads of a row."""
    return form.attention.threads(t) // t.bm


class RunningRows:
    """The rows of a block, with what their threads know of them in registers."""

    def __init__(
        self, form: RunningAttention, t: AttentionTiling, scores: Buffer, weights: Buffer,
        factors: Buffer, thread: Expr, row: Callable[[Expr], Mapping[Expr, Expr]],
    ) -> None:  # fmt: skip
        self.form, self.t, self.scores, self.weights = form, t, scores, weights
        self.factors = factors
        """What sums of results are multiplied by, for every row of the block."""
        self.lanes = lanes_of_row(form, t)
        self.slot, self.part = thread // self.lanes, thread % self.lanes
        self.row = row(self.slot)
        self.vectors = t.bn // (self.lanes * VECTOR)
        self.n, self.v = Var("n"), Var("v")
        self.top, self.divisor = _number("top"), _number("divisor")
        """The maximum so far, and the sum of exponentials by it."""
        self.line = Buffer("line", (self.vectors, VECTOR), f32, scope="register")
        self.acc = Buffer("of_line", (VECTOR,), f32, scope="register")
        self.now, self.other, self.factor = _number("now"), _number("other"), _number("factor")

    @property
    def kept(self) -> tuple[Buffer, ...]:
        """Registers that last from tile to tile."""
        return self.top, self.divisor

    @property
    def registers(self) -> tuple[Buffer, ...]:
        """Registers of one tile."""
        return self.line, self.acc, self.now, self.other, self.factor

    def begin(self) -> Block:
        return Store(self.top, (), LOWEST), Store(self.divisor, (), const(0.0, f32))

    def tile(self, step: Expr) -> Block:
        """The weights of a tile of keys, and the factor that earlier results get."""
        line, form = Read(self.line, (self.n, self.v)), self.form
        top, now, divisor, factor = (b[()] for b in (self.top, self.now, self.divisor, self.factor))
        # A row of which nothing counts so far has no maximum: all of its exponentials are zero.
        some = select(now > LOWEST, now, const(0.0, f32))
        weight = map_expr(form.stored, lambda e: line if e == form.power else None)
        return (
            *self.each(Store(self.line, (self.n, self.v), self.exponent(step))),
            *self.reduced("max", line),
            Store(self.now, (), combine("max", top, now)),
            Store(self.factor, (), form.exp(top - some)),
            *self.each(Store(self.line, (self.n, self.v), form.exp(line - some))),
            Store(self.top, (), now),
            *self.each(Store(self.weights, (_ZERO, self.slot, self.local), weight)),
            *self.reduced("sum", line),
            Store(self.divisor, (), divisor * factor + now),
            self.told(factor),
        )

    def end(self) -> Block:
        """The factors of complete sums."""
        form = self.form
        last = map_expr(form.factor, lambda e: self.divisor[()] if e == form.divisor else None)
        return (self.told(substitute(last, dict(self.row))),)

    def told(self, factor: Expr) -> Stmt:
        """A factor of the row, where all threads find it."""
        return If(equal(self.part, 0), (Store(self.factors, (self.slot,), factor),))

    # --------------------------------------------------------------------------------- elements
    @property
    def local(self) -> Expr:
        """The key of an element of this thread, within the tile."""
        return (self.n * self.lanes + self.part) * VECTOR + self.v

    def each(self, stmt: Stmt) -> Block:
        """The statement for every element of the thread."""
        vector = loop(self.v, VECTOR, stmt, kind="vector")
        return (loop(self.n, self.vectors, vector, kind="unroll"),)

    def exponent(self, step: Expr) -> Expr:
        """What the exponential of a key is taken of; it is zero for keys behind the last one."""
        form = self.form.attention
        (axis,) = form.rows.elements
        key = step * self.t.bn + self.local
        sum_ = Read(self.scores, (_ZERO, self.slot, self.local))
        known = map_expr(self.form.exponent, lambda e: sum_ if e == form.total else None)
        found = substitute(known, {**self.row, axis: key})
        if form.length % self.t.bn:
            found = select(key < form.length, found, LOWEST)
        return found

    def reduced(self, kind: str, value: Expr) -> Block:
        """A value of all elements of the row, in `now` of each of its threads."""
        start = LOWEST if kind == "max" else const(0.0, f32)
        here = self.acc[(self.v,)]
        steps = Neighbours(self.lanes, self.now, self.other).in_warp(kind)
        return (
            loop(self.v, VECTOR, Store(self.acc, (self.v,), start), kind="vector"),
            *self.each(Store(self.acc, (self.v,), combine(kind, here, value))),
            Store(self.now, (), in_pairs(kind, lambda n: self.acc[(n,)], VECTOR)),
            *steps,
        )


def _number(name: str) -> Buffer:
    return Buffer(name, (), f32, scope="register")
