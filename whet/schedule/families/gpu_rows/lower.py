"""Stages along rows with given sizes as code of threads (see `match` for its shape)."""

from __future__ import annotations

from collections.abc import Callable

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, as_expr, elements, equal
from whet.ir.program import Buffer, If, Let, LoopKind, Program, Stmt, Store
from whet.ir.tensor import Tensor, producers
from whet.schedule.families.gpu_reduce.across import across_threads, barrier_within, combined
from whet.schedule.families.gpu_rows.match import GpuRows, GpuRowTiling, RowStage
from whet.schedule.families.gpu_spatial.grid import BLOCK, Grid, thread_number
from whet.schedule.program.access import map_expr, memory_of
from whet.schedule.program.accumulate import combine
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    split_index,
    start_of,
)

KEPT_LIMIT = 32
"""Elements of a row that a thread keeps in registers at most, of every line."""


def elements_of_thread(length: int, lanes: int, width: int) -> int:
    """The most elements that a thread has of a row."""
    return -(-length // (lanes * width)) * width


def lower_gpu_rows(r: GpuRows, t: GpuRowTiling, name: str) -> Kernel:
    """The kernel of the task with the given sizes."""
    return _Writer(r, t).kernel(name)


class _Writer:
    def __init__(self, r: GpuRows, t: GpuRowTiling) -> None:
        self.r, self.t = r, t
        self.row, self.thread, self.slot = Var("row"), Var("t"), Var("slot")
        self.n, self.v = Var("n"), Var("v")
        last = r.elements[-1]
        self.groups = (*r.elements[:-1], Axis(last.name, last.extent // t.width))
        self.full, self.rest = divmod(elements(self.groups), t.lanes)
        self.keeps = elements_of_thread(r.length, t.lanes, t.width) <= KEPT_LIMIT
        self.registers: list[Buffer] = []
        self.shared: list[Buffer] = []
        self.values: dict[Expr, Expr] = {}
        """What stands for reads of earlier stages and for elements that are kept."""

    def kernel(self, name: str) -> Kernel:
        r, t = self.r, self.t
        code: list[Stmt] = []
        if self.keeps:
            for number, read in enumerate(r.shared):
                code += self.kept(f"kept{number}", read, read)
        for stage in r.stages:
            code += self.line(stage) if stage.is_line else self.number(stage)
        per_block, rows = t.threads // t.lanes, elements(r.rows)
        thread = thread_number(t.threads)
        places = {
            self.slot: thread // t.lanes,
            self.thread: thread % t.lanes,
            self.row: start_of(BLOCK, per_block, rows) + self.slot,
        }
        for var, value in reversed(places.items()):
            code = [Let(var, value, tuple(code))]
        grid = Grid(-(-rows // per_block), t.threads, t.trigger)
        whole = (grid.around(code, self.registers, self.shared),)
        inputs, arguments = arguments_of(r.task, whole, {})
        outputs: dict[Buffer, Tensor] = {memory_of(o, r.task): o for o in r.task.outputs}
        program = Program(name, inputs, tuple(outputs), whole)
        return Kernel(program, arguments, tuple(outputs.values()))

    # --------------------------------------------------------------------------------- elements
    def place(self, n: Expr) -> dict[Expr, Expr]:
        """The element with number (n, v) of this thread, on all axes."""
        found = split_index(n * self.t.lanes + self.thread, self.groups)
        env: dict[Expr, Expr] = dict(split_index(self.row, self.r.rows))
        env |= {a: found[g] for a, g in zip(self.r.elements, self.groups)}
        env[self.r.elements[-1]] = found[self.groups[-1]] * self.t.width + self.v
        return env

    def each(self, body: Callable[[Expr], Stmt]) -> list[Stmt]:
        """The statement for all elements of this thread, given the number of the vector."""

        def vector(n: Expr) -> Stmt:
            return loop(self.v, self.t.width, body(n), kind="vector")

        kind: LoopKind = "unroll" if self.keeps else "serial"
        found: list[Stmt] = []
        if self.full:
            found.append(loop(self.n, self.full, vector(self.n), kind=kind))
        if self.rest:
            found.append(If(self.thread < self.rest, (vector(as_expr(self.full)),)))
        return found

    def at(self, e: Expr, n: Expr) -> Expr:
        """An expression of a stage at the element (n, v)."""
        known = map_expr(e, self.values.get)
        return substitute(known, {**self.place(n), self.n: n})

    def register(self, name: str, shape: tuple[int, ...], e: Expr) -> Buffer:
        made = Buffer(name, shape, e.dtype, scope="register")
        self.registers.append(made)
        return made

    def kept(self, name: str, stands_for: Expr, e: Expr) -> list[Stmt]:
        """A value of every element in registers, which stands for an expression from now on."""
        shape = (self.full + (self.rest > 0), self.t.width)
        place = self.register(name, shape, e)
        found = self.each(lambda n: Store(place, (n, self.v), self.at(e, n)))
        self.values[stands_for] = place[self.n, self.v]
        return found

    # ----------------------------------------------------------------------------------- stages
    def line(self, stage: RowStage) -> list[Stmt]:
        """A value for every element of the row."""
        mark = Read(stage.mark, ())
        found: list[Stmt] = []
        if not self.is_read(stage):
            value = stage.body
        elif self.keeps:
            found = self.kept(f"line{len(self.registers)}", mark, stage.body)
            value = mark
        else:
            value = self.values[mark] = map_expr(stage.body, self.values.get)
        if stage.address is not None:
            target, address = memory_of(stage.stage, self.r.task), stage.address
            found += self.each(lambda n: Store(target, (self.at(address, n),), self.at(value, n)))
        return found

    def is_read(self, stage: RowStage) -> bool:
        return any(stage.stage in producers(s.stage) for s in self.r.stages)

    def number(self, stage: RowStage) -> list[Stmt]:
        """One value for the row, which all of its threads have."""
        found: list[Stmt] = []
        for reduce in stage.reduces:
            found += self.reduction(reduce)
        place = self.register(f"number{len(self.registers)}", (), stage.body)
        env = split_index(self.row, self.r.rows)
        value = substitute(map_expr(stage.body, self.values.get), env)
        found.append(Store(place, (), value))
        self.values[Read(stage.mark, ())] = place[()]
        if stage.address is not None:
            target = memory_of(stage.stage, self.r.task)
            stored = Store(target, (substitute(stage.address, env),), place[()])
            found.append(If(equal(self.thread, 0), (stored,)))
        return found

    def reduction(self, reduce: Reduce) -> list[Stmt]:
        """The thread's own elements added up, then those of all threads of the row."""
        kind, lanes, number = reduce.kind, self.t.lanes, len(self.shared)
        acc = self.register(f"acc{number}", (self.t.width,), reduce.value)
        here = acc[(self.v,)]
        start = Store(acc, (self.v,), identity_element(kind, acc.dtype))
        found: list[Stmt] = [loop(self.v, self.t.width, start, kind="vector")]
        found += self.each(
            lambda n: Store(acc, (self.v,), combine(kind, here, self.at(reduce.value, n)))
        )
        shape = (self.t.threads // lanes, lanes)
        cells = Buffer(f"cells{number}", shape, acc.dtype, scope="shared")
        self.shared.append(cells)

        def store(e: Expr) -> Stmt:
            return Store(cells, (self.slot, self.thread), e)

        own = combined(kind, lambda n: acc[(n,)], 0, 1, self.t.width)
        steps, total = across_threads(
            kind, self.thread, lanes, barrier_within(lanes), lambda n: cells[self.slot, n], store
        )
        self.values[reduce] = total
        return [*found, store(own), *steps]
