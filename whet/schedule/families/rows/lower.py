"""Stages over common rows as a loop nest (see `match` for its shape)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from whet.core.types import Shape
from whet.ir.affine import affine, substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, as_expr
from whet.ir.program import Allocate, Buffer, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor, subexpressions
from whet.schedule.families.rows.match import Rows, RowTiling
from whet.schedule.program.access import address_form, flatten_accesses, map_expr, memory_of
from whet.schedule.program.accumulate import combine
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    power_of_two_below,
    read_buffers,
    split_index,
    start_of,
)


def lower_rows(r: Rows, t: RowTiling, name: str) -> Kernel:
    """The kernel of the task with the given sizes."""
    rows = math.prod(r.row_shape)
    steps = -(-rows // t.rows_per_step)
    p, io, within = Var("p"), Var("io"), Var("within")
    several = (within, t.together) if t.together > 1 else None
    row = start_of(p, t.rows_per_step, rows) + (io * t.together + within if several else io)
    writer = RowWriter(r, t, row, several=several)
    body: tuple[Stmt, ...] = tuple(s for stage in r.stages for s in writer.stage(stage))
    for buffer in writer.scratch:
        body = (Allocate(buffer, body),)
    nest = (loop(p, steps, loop(io, t.rows_per_step // t.together, *body), kind="parallel"),)
    inputs, arguments = arguments_of(r.task, nest, {})
    outputs = {memory_of(o, r.task): o for o in r.task.outputs}
    # Reads under a condition keep their indices, also those of an output by a later stage.
    read = set(read_buffers(*nest))
    outputs |= {r.task.buffers[o]: o for o in r.task.outputs if r.task.buffers[o] in read}
    program = Program(name, inputs, tuple(outputs), nest)
    return Kernel(program, arguments, tuple(outputs.values()))


class RowWriter:
    """Writes the stages of one row, or of several rows that go through each stage together.

    `kept` gives stages whose lines are rows of a buffer that outlives the row, and which row.
    `several` is the variable of the rows that go together, and how many they are:

        for each stage:  for several:  the stage at `row`, which depends on the variable

    A reduction ends in a chain of operations that wait for each other; the next row's does not
    depend on it, so the core works on both.
    """

    def __init__(
        self,
        r: Rows,
        t: RowTiling,
        row: Expr,
        kept: Mapping[Tensor, tuple[Buffer, Expr]] = MappingProxyType({}),
        several: tuple[Var, int] | None = None,
    ) -> None:
        self.r, self.t, self.row, self.kept, self.several = r, t, row, kept, several
        self.scratch: list[Buffer] = []
        self.places: dict[Tensor, Buffer] = {}
        self.count = 0

    def stage(self, stage: Compute) -> list[Stmt]:
        reduces = [e for e in subexpressions(stage.body) if isinstance(e, Reduce)]
        body = flatten_accesses(stage, self.r.task)
        env: dict[Expr, Expr] = dict(split_index(self.row, stage.axes[: self.r.row_rank]))
        if reduces or all(a.extent == 1 for a in stage.axes[self.r.row_rank :]):
            made = self.number(stage, body, env)
        else:
            made = self.line(stage, body, env)
        return made if self.several is None else [loop(*self.several, *made)]

    # ------------------------------------------------------------------- one number per row
    def number(self, stage: Compute, body: Expr, env: dict[Expr, Expr]) -> list[Stmt]:
        """A stage that gives one number per row, kept in a register and stored if wanted."""
        env = {**env, **{a: as_expr(0) for a in stage.axes[self.r.row_rank :]}}
        statements: list[Stmt] = []
        results: dict[Expr, Expr] = {}
        for reduce in [e for e in subexpressions(body) if isinstance(e, Reduce)]:
            made, value = self.reduction(reduce, env)
            statements += made
            results[reduce] = value
        value = substitute(self.local(map_expr(body, results.get)), env)
        place = self.new("number", (), stage)
        self.places[stage] = place
        statements.append(Store(place, self.at_row(), value))
        if stage in self.r.task.buffers:
            output = self.r.task.buffers[stage]
            address = substitute(address_form(output, stage.axes).expr(), env)
            statements.append(
                Store(memory_of(stage, self.r.task), (address,), place[self.at_row()])
            )
        return statements

    def reduction(self, reduce: Reduce, env: dict[Expr, Expr]) -> tuple[list[Stmt], Expr]:
        """The loops of a reduction along the row and the expression of its result."""
        axes = [a for a in reduce.axes if a.extent > 1]
        env = {**env, **{a: as_expr(0) for a in reduce.axes if a.extent == 1}}
        value = self.local(reduce.value)
        if not axes:
            return [], substitute(value, env)
        self.count += 1
        variables = {a: Var(f"r{self.count}_{n}") for n, a in enumerate(axes)}
        last = lane_axis(value, axes)
        outer = [a for a in axes if a is not last]
        lanes = min(self.t.lanes, power_of_two_below(last.extent))
        vectors = max(1, min(self.t.vectors, last.extent // lanes))
        acc = Buffer(f"acc{self.count}", (vectors, lanes), value.dtype, scope="register")
        self.scratch.append(acc)
        block = lanes * vectors
        full, rest = divmod(last.extent, block)
        j, v, lane = Var(f"j{self.count}"), Var("v"), Var("lane")

        env.update(variables.items())

        def each(count: int, *body: Stmt) -> Stmt:
            return loop(v, count, loop(lane, lanes, *body, kind="vector"), kind="unroll")

        def step(position: Expr) -> Stmt:
            where: dict[Expr, Expr] = {**env, last: position}
            new = combine(reduce.kind, acc[v, lane], substitute(value, where))
            return Store(acc, (v, lane), new)

        start = Store(acc, (v, lane), identity_element(reduce.kind, value.dtype))
        inner: list[Stmt] = [loop(j, full, each(vectors, step(j * block + v * lanes + lane)))]
        begin = full * block
        if rest // lanes:
            inner.append(each(rest // lanes, step(v * lanes + lane + begin)))
        tail = rest % lanes
        extra: Buffer | None = None
        if tail:
            begin += rest // lanes * lanes
            extra = Buffer(f"tail{self.count}", (tail,), value.dtype, scope="register")
            self.scratch.append(extra)
            where: dict[Expr, Expr] = {**env, last: lane + begin}
            new = combine(reduce.kind, extra[lane], substitute(value, where))
            inner.append(loop(lane, tail, Store(extra, (lane,), new), kind="vector"))
        nest = inner
        for a in reversed(outer):
            nest = [loop(variables[a], a.extent, *nest)]
        before: list[Stmt] = [each(vectors, start)]
        if extra is not None:
            identity = identity_element(reduce.kind, value.dtype)
            before.append(loop(lane, tail, Store(extra, (lane,), identity), kind="vector"))
        after, total = self.across(reduce.kind, acc, extra)
        return [*before, *nest, *after], total

    def across(self, kind: str, acc: Buffer, extra: Buffer | None) -> tuple[list[Stmt], Expr]:
        """The accumulators of a reduction combined into one number."""
        vectors, lanes = acc.shape
        lane = Var("lane")
        statements: list[Stmt] = []
        width = vectors
        while width > 1:
            half = width // 2
            for n in range(half):
                pair = combine(kind, acc[n, lane], acc[width - 1 - n, lane])
                statements.append(
                    loop(lane, lanes, Store(acc, (as_expr(n), lane), pair), kind="vector")
                )
            width -= half
        axis = Axis("across", lanes, "R")
        total: Expr = Reduce(kind, (axis,), acc[0, axis])
        if extra is not None:
            axis = Axis("across", extra.shape[0], "R")
            total = combine(kind, total, Reduce(kind, (axis,), extra[(axis,)]))
        return statements, total

    # ------------------------------------------------------------------- one line per row
    def line(self, stage: Compute, body: Expr, env: dict[Expr, Expr]) -> list[Stmt]:
        """An element-wise stage over the row."""
        inner = stage.axes[self.r.row_rank :]
        last = self.contiguous_axis(stage, inner)
        outer = [a for a in inner if a is not last]
        variables: dict[Expr, Expr] = {a: Var(f"c{n}") for n, a in enumerate(outer)}
        env = {**env, **variables}
        index: tuple[Expr, ...]
        if stage in self.r.task.buffers:
            target = memory_of(stage, self.r.task)
            index = (address_form(self.r.task.buffers[stage], stage.axes).expr(),)
        elif stage in self.kept:
            target, at = self.kept[stage]
            index = (at, *inner)
        else:
            target = self.new("line", tuple(a.extent for a in inner), stage)
            self.places[stage] = target
            index = (*self.at_row(), *inner)
        value = self.local(body)
        lanes = min(self.t.lanes, power_of_two_below(last.extent))
        vectors = max(1, min(self.t.vectors, last.extent // lanes))
        block = lanes * vectors
        full, rest = divmod(last.extent, block)
        j, v, lane = Var("j"), Var("v"), Var("lane")

        def store(position: Expr) -> Stmt:
            where = {**env, last: position}
            return Store(
                target, tuple(substitute(i, where) for i in index), substitute(value, where)
            )

        def each(count: int, position: Expr) -> Stmt:
            return loop(v, count, loop(lane, lanes, store(position), kind="vector"), kind="unroll")

        nest: list[Stmt] = [loop(j, full, each(vectors, j * block + v * lanes + lane))]
        begin = full * block
        if rest // lanes:
            nest.append(each(rest // lanes, v * lanes + lane + begin))
        if rest % lanes:
            begin += rest // lanes * lanes
            nest.append(loop(lane, rest % lanes, store(lane + begin), kind="vector"))
        for a in reversed(outer):
            var = variables[a]
            assert isinstance(var, Var)
            nest = [loop(var, a.extent, *nest)]
        return nest

    def contiguous_axis(self, stage: Compute, inner: Sequence[Axis]) -> Axis:
        """The inner axis to run lanes along: contiguous in the output, else the longest."""
        if stage in self.r.task.buffers:
            strides = self.r.task.buffers[stage].element_strides
            for axis, stride in zip(stage.axes, strides):
                if axis in inner and stride == 1 and axis.extent > 1:
                    return axis
        return max(reversed(inner), key=lambda a: a.extent > 1)

    # ------------------------------------------------------------------------------ places
    def at_row(self) -> tuple[Expr, ...]:
        """Which of the rows that go together, as the first index of what is kept of each."""
        return () if self.several is None else (self.several[0],)

    def new(self, hint: str, shape: Shape, stage: Compute) -> Buffer:
        self.count += 1
        if self.several is not None:
            shape = (self.several[1], *shape)
        scope = "memory" if shape else "register"
        buffer = Buffer(f"{hint}{self.count}", shape, stage.dtype, scope=scope)  # type: ignore[arg-type]
        self.scratch.append(buffer)
        return buffer

    def local(self, e: Expr) -> Expr:
        """Reads of earlier stages as reads of where their row is kept."""

        def change(x: Expr) -> Expr | None:
            if isinstance(x, Read) and x.tensor in self.kept:
                buffer, row = self.kept[x.tensor]
                return Read(buffer, (row, *x.indices[self.r.row_rank :]))
            if isinstance(x, Read) and x.tensor in self.places:
                place = self.places[x.tensor]
                line = len(place.shape) > len(self.at_row())
                at = x.indices[self.r.row_rank :] if line else ()
                return Read(place, (*self.at_row(), *at))
            return None

        return map_expr(e, change)


def lane_axis(value: Expr, axes: Sequence[Axis]) -> Axis:
    """The axis to run lanes along: the one with the smallest step in memory."""
    return max(axes, key=lambda a: -_stride(value, a) if _stride(value, a) else -(1 << 60))


def _stride(e: Expr, axis: Axis) -> int:
    """The step of the first flat read that moves along the axis, 0 if none does."""
    for x in subexpressions(e):
        if isinstance(x, Read) and x.indices:
            step = affine(x.indices[-1]).coefficient(axis)
            if step:
                return abs(step)
    return 0
