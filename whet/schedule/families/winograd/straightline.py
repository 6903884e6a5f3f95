"""Linear maps as straight-line vector code: every value in a register of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from whet.core.dtypes import DType
from whet.ir.expr import Expr, Var, as_expr
from whet.ir.program import Allocate, Buffer, Stmt, Store
from whet.schedule.algorithms.transforms import Combination, LinearPlan, Transform
from whet.schedule.families.winograd.outliers import Watch
from whet.schedule.program.loops import loop


class Registers:
    """Straight-line vector code over numbered registers."""

    def __init__(
        self, tile: Transform, lanes: int, dtype: DType, watch: Watch | None = None
    ) -> None:
        self.tile, self.watch = tile, watch
        self.lane = Var("lane")
        steps = sum(tile.lines(n) * len(plan.steps) for n, plan in enumerate(tile.plans))
        count = math.prod(tile.before) + steps
        self.buffer = Buffer("t", (count, lanes), dtype, scope="register")
        self.body: list[Stmt] = []
        self.used = 0

    def keep(self, value: Expr) -> Expr:
        """The value in a register of its own."""
        at = (as_expr(self.used), self.lane)
        self.used += 1
        self.body.append(Store(self.buffer, at, value))
        return self.buffer[at]

    def read(self, value: Expr) -> Expr:
        """A value from outside in a register, watched if somebody watches."""
        kept = self.keep(value)
        if self.watch is not None:
            self.body.append(self.watch.note(kept, self.lane))
        return kept

    def apply(self, plan: LinearPlan, line: Sequence[Expr]) -> list[Expr]:
        """The plan's matrix times a line of values."""
        values = list(line)
        for step in plan.steps:
            values.append(self.keep(combination(step, values)))
        return [values[n] for n in plan.results]

    def transform(
        self,
        load: Callable[[tuple[int, ...]], Expr],
        finish: Callable[[tuple[int, ...], Expr], Stmt],
    ) -> Stmt:
        """The transform of an array that `load` reads element by element."""
        values: dict[tuple[int, ...], Expr] = {}
        for axis, plan in enumerate(self.tile.plans):
            done: dict[tuple[int, ...], Expr] = {}
            for before, after in self.lines(axis):
                at = [(*before, n, *after) for n in range(plan.inputs)]
                line = [values[p] if axis else self.read(load(p)) for p in at]
                for n, value in enumerate(self.apply(plan, line)):
                    if axis == len(self.tile.plans) - 1:
                        self.body.append(finish((*before, n, *after), value))
                    else:
                        done[(*before, n, *after)] = value
            values = done
        if self.watch is not None:
            self.body.append(self.watch.gather(self.lane))
        body = loop(self.lane, self.buffer.shape[1], *self.body, kind="vector")
        nest = Allocate(self.buffer, (body,))
        return nest if self.watch is None else Allocate(self.watch.squares, (nest,))

    def lines(self, axis: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The positions around an axis: axes before it are transformed already."""
        left, right = self.tile.shape_around(axis)
        for before in product(*map(range, left)):
            for after in product(*map(range, right)):
                yield before, after


def combination(terms: Combination, values: Sequence[Expr]) -> Expr:
    """The sum of the terms, plain additions first so that products can be fused to them."""
    total: Expr | None = None
    for n, factor in sorted(terms, key=lambda t: (abs(t[1]) != 1, t[1] < 0)):
        value = values[n]
        if total is None:
            total = value if factor == 1 else value * factor
        elif abs(factor) == 1:
            total = total + value if factor > 0 else total - value
        else:
            total = total + value * factor
    assert total is not None
    return total
