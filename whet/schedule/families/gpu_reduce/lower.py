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
from whet.schedule.families.gpu_spatial.early import (
    KEPT_REGISTERS,
    Step,
    kept_reads,
    reads_of_end,
    unconditional_reads,
)
from whet.schedule.families.gpu_spatial.grid import BLOCK, RANK, Grid, thread_number
from whet.schedule.program.access import map_expr, reads_constants_alone
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
        self.u = Var("u")
        self.slot: Expr = Var("slot") if self.per_block > 1 else as_expr(0)
        dtype = s.value.dtype
        self.acc = Buffer("acc", (t.width,), dtype, scope="register")
        self.registers = [self.acc]
        self.term_width = t.width if t.along == ALONG_TERMS else 1
        last = s.terms[-1]
        self.groups = (*s.terms[:-1], Axis(last.name, last.extent // self.term_width))
        self.parts = t.split * t.ranks
        self.own_part = self.part if t.ranks == 1 else RANK * t.split + self.part
        self.full, self.rest = divmod(elements(self.groups), self.parts)
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
        early, first = self.loads()
        code = [*first, *self.terms(), *self.together(None if exact else number < total)]
        grid = Grid(blocks, t.threads, t.trigger, t.ranks)
        shared = [self.cells] if self.cells.type.size else []
        whole = (grid.around(code, self.registers, shared, early, places),)
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

    # ------------------------------------------------------------------------------- operands
    def loads(self) -> tuple[list[Stmt], list[Stmt]]:
        """What is read before the inputs are awaited, and what in front of the terms.

        Constants are early, those that the total meets and those of the first terms, and other
        operands that the total meets are first.
        """
        s, env = self.s, self.outputs()
        wide = self.out_width > 1
        fixed = [a for a in s.stage.axes if not (wide and a is s.vector)]
        steps = []
        if wide and s.vector is not None:
            steps.append(Step(s.vector, self.v, self.v, self.out_width, "vector"))
        known = kept_reads("known", reads_of_end(s.stage.body, self.is_constant), steps, fixed)
        others = reads_of_end(s.stage.body, lambda read: not self.is_constant(read))
        operands = kept_reads("operand", others, steps, fixed)
        self.at_end: dict[Expr, Expr] = {k.read: k.value for k in (*known, *operands)}
        self.registers += [k.buffer for k in (*known, *operands)]
        early = [k.loaded(env) for k in known]
        if not operands:
            return early + self.factors(), []
        # Read by those alone that store: compilers move a load that all do to where one needs it,
        # which is behind the exchange of sums.
        loads = tuple(k.loaded(env) for k in operands)
        first = [k.cleared() for k in operands]
        return early + self.factors(), [*first, If(equal(self.part, 0), loads)]

    def factors(self) -> list[Stmt]:
        """Loads the constants of the first terms, as many as registers have room for."""
        reads = unconditional_reads(self.s.value, self.is_constant)
        room = KEPT_REGISTERS // (self.t.width * max(len(reads), 1))
        self.steps_held = min(self.full, room) if reads else 0
        self.held: dict[Expr, Expr] = {}
        if not self.steps_held:
            return []
        found: list[Stmt] = []
        for read in reads:
            shape = (self.steps_held, self.t.width)
            held = Buffer(f"factor{len(found)}", shape, read.dtype, scope="register")
            self.registers.append(held)
            self.held[read] = held[(self.u, self.v)]
            load = Store(held, (self.u, self.v), substitute(read, self.places(self.u)))
            found.append(loop(self.u, self.steps_held, self.vectors(load), kind="unroll"))
        return found

    def is_constant(self, read: Read) -> bool:
        return reads_constants_alone(read, self.s.task)

    # ---------------------------------------------------------------------------- one thread's
    def places(self, step: Expr) -> dict[Expr, Expr]:
        """The place of a term on every axis."""
        found = split_index(step * self.parts + self.own_part, self.groups)
        env = self.outputs() | {a: found[g] for a, g in zip(self.s.terms, self.groups)}
        if self.term_width > 1:
            env[self.s.terms[-1]] = found[self.groups[-1]] * self.term_width + self.v
        return env

    def terms(self) -> list[Stmt]:
        """A part of the terms, added up in registers."""
        step, u, held = Var("step"), self.u, self.steps_held
        start = identity_element(self.kind, self.s.value.dtype)
        found: list[Stmt] = [self.vectors(Store(self.acc, (self.v,), start))]
        if held:
            value = map_expr(self.s.value, self.held.get)
            found.append(loop(u, held, self.add(u, value), kind="unroll"))
        rounds, few = divmod(self.full - held, STEPS_AT_ONCE)
        if rounds:
            some = self.add(step * STEPS_AT_ONCE + u + held, self.s.value)
            found.append(loop(step, rounds, loop(u, STEPS_AT_ONCE, some, kind="unroll")))
        if few:
            last = self.add(u + (self.full - few), self.s.value)
            found.append(loop(u, few, last, kind="unroll"))
        if self.rest:
            last = self.add(as_expr(self.full), self.s.value)
            found.append(If(self.own_part < self.rest, (last,)))
        return found

    def add(self, step: Expr, value: Expr) -> Stmt:
        new = combine(self.kind, self.acc[(self.v,)], substitute(value, self.places(step)))
        return self.vectors(Store(self.acc, (self.v,), new))

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
        body = map_expr(s.stage.body, lambda e: total if e is s.reduce else self.at_end.get(e))
        address = substitute(s.stage.address, env)
        store = self.outs(Store(s.stage.target, (address,), substitute(body, env)))
        found.append(If(chosen, (store,)))
        if t.ranks > 1:
            found.append(Barrier("cluster"))  # nobody leaves while its cells are read
        return found
