"""A search for positions with given sizes as code of threads (see `match` for its shape)."""

from __future__ import annotations

from collections.abc import Sequence

from whet.core.dtypes import DType, bool_, i64
from whet.ir.affine import substitute
from whet.ir.expr import Expr, Read, Var, as_expr, call, const, elements, equal, select
from whet.ir.program import Buffer, If, Program, Stmt, Store
from whet.ir.threads import WARP, Barrier, Exchange
from whet.schedule.families.gpu_arg.match import GpuArg, GpuArgTiling
from whet.schedule.families.gpu_reduce.across import exchanges_of
from whet.schedule.families.gpu_spatial.grid import BLOCK, Grid, thread_number
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import takes_over
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    split_index,
    within_count,
)

STEPS_AT_ONCE = 8
"""Steps whose loads do not wait for each other."""


def lower_gpu_arg(s: GpuArg, t: GpuArgTiling, name: str) -> Kernel:
    """The kernel of the search with the given sizes."""
    return _Writer(s, t).kernel(name)


class _Writer:
    def __init__(self, s: GpuArg, t: GpuArgTiling) -> None:
        self.s, self.t, self.kind = s, t, s.reduce.kind
        self.per_block = t.threads // t.lanes
        self.part, self.slot, self.tile = Var("part"), Var("slot"), Var("tile")
        self.u, self.step = Var("u"), Var("step")
        dtype = s.reduce.value.dtype
        self.best, self.other = (_register(n, dtype) for n in ("best", "other"))
        self.at, self.other_at = (_register(n, i64) for n in ("at", "other_at"))
        self.wins = _register("wins", bool_)
        self.seen = Buffer("seen", (STEPS_AT_ONCE,), dtype, scope="register")
        self.warps = t.lanes // WARP
        shape = (self.per_block, max(self.warps, 1))
        self.values = Buffer("values", shape, dtype, scope="shared")
        self.positions = Buffer("positions", shape, i64, scope="shared")

    def kernel(self, name: str) -> Kernel:
        s, t = self.s, self.t
        total = elements(s.stage.axes)
        exact = total % self.per_block == 0
        number = BLOCK * self.per_block + self.slot
        thread = thread_number(t.threads)
        # All threads come to the barriers: those that are too many repeat the last output.
        places: dict[Var, Expr] = {
            self.part: thread % t.lanes, self.slot: thread // t.lanes,
            self.tile: within_count(number, total, exact=exact),
        }  # fmt: skip
        registers = [
            self.best, self.other, self.at, self.other_at, self.wins, self.seen,
        ]  # fmt: skip
        shared = [self.values, self.positions] if self.warps > 1 else []
        first = equal(self.part, 0)
        code = [*self.terms(), *self.together(), self.stored(
            first if exact else first & (number < total)
        )]  # fmt: skip
        grid = Grid(-(-total // self.per_block), t.threads, t.trigger)
        whole = (grid.around(code, registers, shared, positions=places),)
        inputs, arguments = arguments_of(s.task, whole, {})
        return Kernel(Program(name, inputs, (s.stage.target,), whole), arguments, s.task.outputs)

    @property
    def outputs(self) -> dict[Expr, Expr]:
        """The place of a thread's output on every axis."""
        return dict(split_index(self.tile, self.s.stage.axes))

    # ---------------------------------------------------------------------------- one thread's
    def terms(self) -> list[Stmt]:
        """The best of every `lanes`-th term."""
        start = identity_element(self.kind, self.best.dtype)
        found: list[Stmt] = [Store(self.best, (), start), Store(self.at, (), const(0, i64))]
        full, rest = divmod(self.s.length, self.t.lanes)
        rounds, few = divmod(full, STEPS_AT_ONCE)
        if rounds:
            some = self.some(self.step * STEPS_AT_ONCE, STEPS_AT_ONCE)
            found.append(loop(self.step, rounds, *some))
        if few:
            found += self.some(as_expr(full - few), few)
        if rest:
            found.append(If(self.part < rest, tuple(self.some(as_expr(full), 1))))
        return found

    def some(self, first: Expr, count: int) -> Sequence[Stmt]:
        """The terms of so many steps: all are loaded before the first one is looked at."""
        term = (first + self.u) * self.t.lanes + self.part
        env = {**self.outputs, **split_index(term, self.s.terms)}
        value, seen = substitute(self.s.reduce.value, env), Read(self.seen, (self.u,))
        return (
            loop(self.u, count, Store(self.seen, (self.u,), value), kind="unroll"),
            loop(self.u, count, *self.taken(seen, term, later=True), kind="unroll"),
        )

    def taken(self, value: Expr, at: Expr, *, later: bool) -> Sequence[Stmt]:
        """A value and its position taken if they are better, or equal and earlier.

        Where all positions so far are earlier, none is asked for.
        """
        best, position, wins = self.best[()], self.at[()], self.wins[()]
        better = takes_over(self.kind, value, best)
        if not later:
            equals = call("not", takes_over(self.kind, best, value))
            better = better | (equals & (at < position))
        return (
            Store(self.wins, (), better),
            Store(self.best, (), select(wins, value, best)),
            Store(self.at, (), select(wins, at, position)),
        )

    # ------------------------------------------------------------------------- all threads'
    def together(self) -> list[Stmt]:
        """The best of all threads, in the first one."""
        found: list[Stmt] = []
        for mask in exchanges_of(self.t.lanes):
            found += [
                Exchange(self.other, (), self.best, (), mask),
                Exchange(self.other_at, (), self.at, (), mask),
                *self.taken(self.other[()], self.other_at[()], later=False),
            ]
        if self.warps > 1:
            cell = (self.slot, self.part // WARP)
            leave = (
                Store(self.values, cell, self.best[()]), Store(self.positions, cell, self.at[()])
            )  # fmt: skip
            found += [If(equal(self.part % WARP, 0), leave), Barrier("block")]
            for warp in range(1, self.warps):
                place = (self.slot, as_expr(warp))
                value, at = Read(self.values, place), Read(self.positions, place)
                found += self.taken(value, at, later=False)
        return found

    def stored(self, chosen: Expr) -> Stmt:
        """The result, by the thread that has it."""
        s = self.s
        body = map_expr(s.stage.body, lambda e: self.at[()] if e is s.reduce else None)
        address = substitute(s.stage.address, self.outputs)
        return If(chosen, (Store(s.stage.target, (address,), substitute(body, self.outputs)),))


def _register(name: str, dtype: DType) -> Buffer:
    return Buffer(name, (), dtype, scope="register")
