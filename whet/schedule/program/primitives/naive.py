"""The program of tensor expressions before any schedule step.

y[i, j in 4, 3] = relu(sum(a[i, k] * b[k, j] for k in 6))
    ->
for i in 4: for j in 3:                     (y_sum lies in the workspace)
  y_sum[i, j] = 0.0
  for k in 6: y_sum[i, j] = y_sum[i, j] + a[i, k] * b[k, j]
for i_1 in 4: for j_1 in 3:
  y[i_1, j_1] = max(y_sum[i_1, j_1], 0.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.core.dtypes import i64
from whet.core.errors import ScheduleError, check
from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Select, Var, as_expr, const, select
from whet.ir.program import Buffer, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor, stages, subexpressions
from whet.schedule.program.access import (
    bordered_buffer,
    extents_of,
    guard_is_needless,
    map_expr,
)
from whet.schedule.program.accumulate import combine, takes_over
from whet.schedule.program.loops import identity_element, loop
from whet.schedule.program.primitives.accesses import strides_like
from whet.schedule.program.primitives.names import Names
from whet.tasks.task import Task


def naive_program(task: Task, name: str = "kernel") -> Program:
    """One nest per stage, in the order of the stages; loops are named after their axes."""
    return _Writer(task, name).program()


class _Writer:
    def __init__(self, task: Task, name: str) -> None:
        self.task, self.name = task, name
        self.buffers: dict[Tensor, Buffer] = dict(task.buffers)
        self.workspace: list[Buffer] = []
        outputs = tuple(task.buffers[t] for t in task.outputs)
        self.buffers |= {t: bordered_buffer(task.buffers[t], task.borders[t])
                         for t in task.inputs if t in task.borders}  # fmt: skip
        self.inputs = tuple(self.buffers[t] for t in task.inputs)
        self.names = Names(Program(name, self.inputs, outputs, ()))
        self.body: list[Stmt] = []
        self.extents: dict[Expr, int] = {}

    def program(self) -> Program:
        for stage in stages(self.task.outputs):
            if isinstance(stage, Compute):
                self.stage(stage)
        outputs = tuple(self.task.buffers[t] for t in self.task.outputs)
        return Program(self.name, self.inputs, outputs, tuple(self.body), tuple(self.workspace))

    def stage(self, stage: Compute) -> None:
        self.extents = extents_of(stage)
        if stage not in self.buffers:
            self.buffers[stage] = self.scratch(stage.name, stage)
        target = self.buffers[stage]
        results: dict[Expr, Expr] = {}
        for reduce in [e for e in subexpressions(stage.body) if isinstance(e, Reduce)]:
            nested = any(isinstance(e, Reduce) for e in subexpressions(reduce.value))
            check(not nested, "WH2106", f"'{stage.name}' reduces a reduction: {reduce}",
                  hint="give the inner one a stage of its own", kind=ScheduleError)  # fmt: skip
            whole = reduce is stage.body and not reduce.kind.startswith("arg")
            place = target if whole else self.scratch(f"{stage.name}_{reduce.kind}", stage, reduce)
            self.reduction(stage.axes, reduce, place)
            results[reduce] = place[stage.axes]
            if whole:
                return
        self.nest(stage.axes, lambda at: [Store(target, at, self.value(stage, results, at))])

    def scratch(self, hint: str, stage: Compute, value: Expr | None = None) -> Buffer:
        dtype = stage.dtype if value is None else value.dtype
        # Axes lie in memory as in the result that the stage is a part of.
        like = self.buffers.get(stage)
        strides = None if like is None else strides_like(like, stage.shape)
        buffer = Buffer(self.names.new(hint), stage.shape, dtype, strides)
        self.workspace.append(buffer)
        return buffer

    def value(self, stage: Compute, results: dict[Expr, Expr], at: Sequence[Expr]) -> Expr:
        body = map_expr(stage.body, results.get)
        return substitute(self.placed(body), dict(zip(stage.axes, at)))

    def placed(self, e: Expr) -> Expr:
        """Reads of tensors as reads of their buffers.

        Where a border of zeros makes a bounds check needless, the zeros are read.
        """

        def change(x: Expr) -> Expr | None:
            if isinstance(x, Select) and guard_is_needless(x, self.task, self.extents):
                x = x.then
                assert isinstance(x, Read)
            if isinstance(x, Read) and x.tensor in self.buffers:
                at = tuple(self.placed(i) for i in x.indices)
                if x.tensor in self.task.inputs and x.tensor in self.task.borders:
                    border = self.task.borders[x.tensor]
                    at = tuple(i + low if low else i for i, (low, _) in zip(at, border))
                return Read(self.buffers[x.tensor], at)
            return None

        return map_expr(e, change)

    def nest(self, axes: Sequence[Axis], body: Callable[[tuple[Expr, ...]], list[Stmt]]) -> None:
        places = self.places(axes)
        self.body += _around(places, axes, body(places))

    def places(self, axes: Sequence[Axis]) -> tuple[Expr, ...]:
        """A variable for every axis; there is nothing to count along one of extent 1."""
        return tuple(self.names.var(a.name) if a.extent != 1 else as_expr(0) for a in axes)

    def reduction(self, axes: Sequence[Axis], reduce: Reduce, place: Buffer) -> None:
        value = self.placed(reduce.value)
        is_arg = reduce.kind.startswith("arg")
        best = place
        if is_arg:
            best = Buffer(self.names.new(f"{place.name}_best"), place.shape, value.dtype)
            self.workspace.append(best)

        def body(at: tuple[Expr, ...]) -> list[Stmt]:
            variables = self.places(reduce.axes)
            env = {**dict(zip(axes, at)), **dict(zip(reduce.axes, variables))}
            term = substitute(value, env)
            inner = _around(
                variables, reduce.axes, self.steps(reduce, best, place, at, term, variables)
            )
            start: list[Stmt] = [Store(best, at, identity_element(reduce.kind, best.dtype))]
            if is_arg:
                start.append(Store(place, at, const(0, i64)))
            return [*start, *inner]

        self.nest(axes, body)

    def steps(
        self,
        reduce: Reduce,
        best: Buffer,
        place: Buffer,
        at: tuple[Expr, ...],
        term: Expr,
        variables: Sequence[Expr],
    ) -> list[Stmt]:
        if best is place:
            return [Store(place, at, combine(reduce.kind, place[at], term))]
        position: Expr = as_expr(0)
        for var, axis in zip(variables, reduce.axes):
            position = position * axis.extent + var
        better = takes_over(reduce.kind, term, best[at])
        return [
            Store(place, at, select(better, position, place[at])),
            Store(best, at, select(better, term, best[at])),
        ]


def _around(places: Sequence[Expr], axes: Sequence[Axis], body: list[Stmt]) -> list[Stmt]:
    """The loops over all places that are variables."""
    for place, axis in zip(reversed(places), reversed(axes)):
        if isinstance(place, Var):
            body = [loop(place, axis.extent, *body)]
    return body
