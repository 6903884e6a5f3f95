"""A long reduction with given sizes as code of threads (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Var, as_expr, elements, equal
from whet.ir.program import Buffer, If, Program, Stmt, Store
from whet.ir.threads import Barrier
from whet.schedule.families.gpu_reduce.across import Neighbours, across_threads, in_pairs
from whet.schedule.families.gpu_reduce.match import (
    ALONG_TERMS,
    GpuReduce,
    GpuReduceTiling,
    slots,
)
from whet.schedule.families.gpu_spatial.grid import BLOCK, RANK, Grid, thread_number
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import combine
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    split_index,
    start_of,
    within_count,
)

STEPS_AT_ONCE = 4
"""Steps whose loads do not wait for each other."""


def lower_gpu_reduce(s: GpuReduce, t: GpuReduceTiling, name: str) -> Kernel:
    """The kernel of the reduction with the given sizes."""
    return _Writer(s, t).kernel(name)


class _Writer:
    def __init__(self, s: GpuReduce, t: GpuReduceTiling) -> None:
        self.s, self.t = s, t
        self.per_block = t.threads // t.split
        self.out_width, self.counts = slots(s, t)
        self.part, self.tile, self.v = Var("part"), Var("tile"), Var("v")
        self.slot: Expr = Var("slot") if self.per_block > 1 else as_expr(0)
        dtype = s.value.dtype
        self.acc = Buffer("acc", (t.width,), dtype, scope="register")
        self.registers = [self.acc]
        parts, self.total_cell = t.split, 0
        if t.along == ALONG_TERMS:
            total, other = (Buffer(n, (), dtype, scope="register") for n in ("total", "other"))
            self.near = Neighbours(t.split, total, other)
            self.registers += [total, other]
            # One for each warp, where there are several, and one for what a cluster reads.
            parts = (self.near.warps if self.near.warps > 1 else 0) + (t.ranks > 1)
            self.total_cell = parts - 1  # the others may still be read
        ranked = (t.ranks,) if t.ranks > 1 else ()
        # Neighbouring threads have neighbouring cells.
        sizes = (parts, self.per_block)
        shape = (*ranked, *(reversed(sizes) if t.along == ALONG_TERMS else sizes), self.out_width)
        self.cells = Buffer("cells", shape, dtype, scope="shared")
        self.kind = s.reduce.kind

    def kernel(self, name: str) -> Kernel:
        s, t = self.s, self.t
        total = elements(self.counts)
        blocks = -(-total // self.per_block)
        thread = thread_number(t.threads)
        if self.per_block == 1:
            part, slot = thread, self.slot
        elif t.along == ALONG_TERMS:
            part, slot = thread % t.split, thread // t.split
        else:
            part, slot = thread // self.per_block, thread % self.per_block
        exact = total % self.per_block == 0
        # All threads come to the barriers: those that are too many repeat the last tile.
        number = BLOCK * self.per_block + self.slot
        tile = within_count(number, total, exact=exact)
        places: dict[Var, Expr] = {self.part: part}
        if isinstance(self.slot, Var):
            places[self.slot] = slot
        places[self.tile] = tile
        code = (*self.terms(), *self.together(None if exact else number < total))
        grid = Grid(blocks, t.threads, t.trigger, t.ranks)
        shared = [self.cells] if self.cells.type.size else []
        whole = (grid.around(code, self.registers, shared, positions=places),)
        inputs, arguments = arguments_of(s.task, whole, {})
        return Kernel(Program(name, inputs, (s.stage.target,), whole), arguments, s.task.outputs)

    def outputs(self) -> dict[Expr, Expr]:
        """The place of a thread's output on every axis."""
        numbers = split_index(self.tile, self.counts)
        env: dict[Expr, Expr] = {}
        for axis, count in zip(self.s.stage.axes, self.counts):
            wide = axis is self.s.vector and self.out_width > 1
            size = self.out_width if wide else 1
            env[axis] = start_of(numbers[count], size, axis.extent) + (self.v if wide else 0)
        return env

    # ---------------------------------------------------------------------------- one thread's
    def terms(self) -> list[Stmt]:
        """A part of the terms, added up in registers."""
        s, t = self.s, self.t
        width = t.width if t.along == ALONG_TERMS else 1
        groups = (*s.terms[:-1], Axis(s.terms[-1].name, s.terms[-1].extent // width))
        parts = t.split * t.ranks
        part = self.part if t.ranks == 1 else RANK * t.split + self.part
        full, rest = divmod(elements(groups), parts)

        def add(step: Expr) -> Stmt:
            found = split_index(step * parts + part, groups)
            env = self.outputs()
            env |= {a: found[g] for a, g in zip(s.terms, groups)}
            if width > 1:
                env[s.terms[-1]] = found[groups[-1]] * width + self.v
            new = combine(self.kind, self.acc[(self.v,)], substitute(s.value, env))
            return self.vectors(Store(self.acc, (self.v,), new))

        step, u = Var("step"), Var("u")
        start = identity_element(self.kind, s.value.dtype)
        found: list[Stmt] = [self.vectors(Store(self.acc, (self.v,), start))]
        if full >= STEPS_AT_ONCE:
            some = loop(u, STEPS_AT_ONCE, add(step * STEPS_AT_ONCE + u), kind="unroll")
            found.append(loop(step, full // STEPS_AT_ONCE, some))
        if few := full % STEPS_AT_ONCE:
            found.append(loop(u, few, add(u + (full - few)), kind="unroll"))
        if rest:
            found.append(If(part < rest, (add(as_expr(full)),)))
        return found

    def vectors(self, *body: Stmt) -> Stmt:
        return loop(self.v, self.t.width, *body, kind="vector")

    # ------------------------------------------------------------------------- all threads'
    def cell(self, rank: Expr | int, part: Expr | int) -> Read:
        return Read(self.cells, self.place(rank, part))

    def place(self, rank: Expr | int, part: Expr | int) -> tuple[Expr, ...]:
        ranked = (as_expr(rank),) if self.t.ranks > 1 else ()
        column = self.v if self.out_width > 1 else as_expr(0)
        at = (as_expr(part), self.slot)
        return (*ranked, *(reversed(at) if self.t.along == ALONG_TERMS else at), column)

    def outs(self, *body: Stmt) -> Stmt:
        """The statements for all outputs of a thread's tile."""
        return loop(self.v, self.out_width, *body, kind="vector")

    def together(self, valid: Expr | None) -> list[Stmt]:
        """The parts of all threads combined, and the result stored."""
        t, s = self.t, self.s
        first = in_pairs(self.kind, lambda n: self.acc[(n,)], t.width)
        if t.along == ALONG_TERMS:
            steps, total = self.near.in_block(self.kind, self.part, lambda n: self.cell(RANK, n))
            found: list[Stmt] = [Store(self.near.total, (), first), *steps]
        else:
            own = self.place(RANK, self.part)
            first = self.acc[(self.v,)] if self.out_width > 1 else first
            steps, total = across_threads(
                self.kind, self.part, t.split,
                lambda n: self.cell(RANK, n), lambda e: self.outs(Store(self.cells, own, e)),
            )  # fmt: skip
            found = [self.outs(Store(self.cells, own, first)), *steps]
        chosen = equal(self.part, 0) if valid is None else equal(self.part, 0) & valid
        if t.ranks > 1:
            # The total of a block is in one cell, where the others of the cluster read it.
            last = self.total_cell
            keep = self.outs(Store(self.cells, self.place(RANK, last), total))
            found += [If(equal(self.part, 0), (keep,)), Barrier("cluster")]
            total = in_pairs(self.kind, lambda n: self.cell(n, last), t.ranks)
            chosen = equal(RANK, 0) & chosen
        env = self.outputs()
        body = map_expr(s.stage.body, lambda e: total if e is s.reduce else None)
        address = substitute(s.stage.address, env)
        store = self.outs(Store(s.stage.target, (address,), substitute(body, env)))
        found.append(If(chosen, (store,)))
        if t.ranks > 1:
            found.append(Barrier("cluster"))  # nobody leaves while its cells are read
        return found
