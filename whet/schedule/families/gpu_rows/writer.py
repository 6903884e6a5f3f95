"""Stages along rows as code of the threads that share a row.

thread t of `lanes`; element (n * lanes + t) * width + v of the row is its own
a reduction:    acc[v] over its elements, then across the threads of the row, which may be those
                of all blocks of a cluster
element-wise:   line[n, v], in registers, and stored if it has a place
a number:       the same in every thread of the row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from whet.core.dtypes import DType
from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, as_expr, elements, equal
from whet.ir.program import Buffer, If, LoopKind, Stmt, Store
from whet.ir.tensor import Compute, producers
from whet.ir.threads import Arrive, AwaitArrivals, Barrier
from whet.schedule.families.gpu_reduce.across import Neighbours, in_pairs
from whet.schedule.families.gpu_rows.loads import KEPT_LIMIT, Loads, elements_of_thread, moves
from whet.schedule.families.gpu_rows.match import GpuRows, RowStage
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import combine
from whet.schedule.program.loops import identity_element, loop, split_index


@dataclass(frozen=True, eq=False)
class RowThreads:
    """The threads of a row, among those of a block."""

    lanes: int
    width: int
    """Elements that a thread takes at once."""
    slots: int
    """Rows that the block has at once."""
    slot: Expr
    """Which of them is this thread's."""
    thread: Expr
    """The number of the thread in its row."""
    row: Mapping[Expr, Expr]
    """The positions of the row."""
    ranks: int = 1
    """Blocks that share the row."""
    rank: Expr = field(default_factory=lambda: as_expr(0))
    """Which of them is this thread's."""

    @property
    def together(self) -> int:
        """Threads that share the row."""
        return self.lanes * self.ranks

    @property
    def number(self) -> Expr:
        """The number of the thread among them."""
        return self.thread if self.ranks == 1 else self.rank * self.lanes + self.thread


class RowWriter:
    """The statements of all stages.

    `places` says where stages are stored, over the axes of rows and elements, `known` what stands
    for expressions of the stages, and `loads` what is kept in registers, if they hold rows.
    """

    def __init__(
        self, r: GpuRows, team: RowThreads, places: Mapping[Compute, Read],
        known: Mapping[Expr, Expr], loads: Loads,
    ) -> None:  # fmt: skip
        self.r, self.team, self.places, self.loads = r, team, places, loads
        self.n, self.v = Var("n"), Var("v")
        last = r.elements[-1]
        self.groups = (*r.elements[:-1], Axis(last.name, last.extent // team.width))
        self.full, self.rest = divmod(elements(self.groups), team.together)
        self.keeps = elements_of_thread(r.length, team.together, team.width) <= KEPT_LIMIT
        self.registers: list[Buffer] = []
        self.shared: list[Buffer] = []
        self.values: dict[Expr, Expr] = dict(known)
        """What stands for reads of earlier stages and for elements that are kept."""

    def early(self) -> list[Stmt]:
        """What may be done before inputs are awaited; written before all other statements."""
        return [s for read in self.loads.early for s in self.loaded(read)]

    def code(self) -> list[Stmt]:
        """The statements; `registers` and `shared` are then the memory that they need."""
        return [*self.first(), *self.between()]

    def first(self) -> list[Stmt]:
        """What is loaded when inputs are there; written before what uses it."""
        return [s for read in self.loads.first for s in self.loaded(read)]

    def between(self) -> list[Stmt]:
        """The stages."""
        found: list[Stmt] = []
        last = max(n for n, stage in enumerate(self.r.stages) if stage.reduces)
        for n, stage in enumerate(self.r.stages):
            found += self.line(stage) if stage.is_line else self.number(stage)
            if self.team.ranks > 1 and n == last:
                found.append(Arrive())  # others' totals are read
        return [*found, AwaitArrivals()] if self.team.ranks > 1 else found

    # --------------------------------------------------------------------------------- elements
    def place(self, n: Expr) -> dict[Expr, Expr]:
        """The element with number (n, v) of this thread, on all axes."""
        found = split_index(n * self.team.together + self.team.number, self.groups)
        env: dict[Expr, Expr] = dict(self.team.row)
        env |= {a: found[g] for a, g in zip(self.r.elements, self.groups)}
        env[self.r.elements[-1]] = found[self.groups[-1]] * self.team.width + self.v
        return env

    def each(self, body: Callable[[Expr], Stmt]) -> list[Stmt]:
        """The statement for all elements of this thread, given the number of the vector."""

        def vector(n: Expr) -> Stmt:
            return loop(self.v, self.team.width, body(n), kind="vector")

        kind: LoopKind = "unroll" if self.keeps else "serial"
        found: list[Stmt] = []
        if self.full == 1:
            found.append(vector(as_expr(0)))
        elif self.full:
            found.append(loop(self.n, self.full, vector(self.n), kind=kind))
        if self.rest:
            found.append(If(self.team.number < self.rest, (vector(as_expr(self.full)),)))
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
        shape = (self.full + (self.rest > 0), self.team.width)
        place = self.register(name, shape, e)
        found = self.each(lambda n: Store(place, (n, self.v), self.at(e, n)))
        self.values[stands_for] = place[self.n, self.v]
        return found

    def loaded(self, read: Read) -> list[Stmt]:
        """The statements that load what stages read, of which registers then have a copy."""
        if not self.keeps:
            return []
        name = f"kept{len(self.registers)}"
        if moves(self.r, read):
            return self.kept(name, read, read)
        place = self.register(name, (), read)
        self.values[read] = place[()]
        return [Store(place, (), substitute(read, self.team.row))]

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
        if stage.stage in self.places:
            buffer, at = self.place_of(stage)
            found += self.each(
                lambda n: Store(buffer, tuple(self.at(i, n) for i in at), self.at(value, n))
            )
        return found

    def place_of(self, stage: RowStage) -> tuple[Buffer, Sequence[Expr]]:
        place = self.places[stage.stage]
        assert isinstance(place.tensor, Buffer)
        return place.tensor, place.indices

    def is_read(self, stage: RowStage) -> bool:
        return any(stage.stage in producers(s.stage) for s in self.r.stages)

    def number(self, stage: RowStage) -> list[Stmt]:
        """One value for the row, which all of its threads have."""
        found: list[Stmt] = []
        for reduce in stage.reduces:
            found += self.reduction(reduce)
        place = self.register(f"number{len(self.registers)}", (), stage.body)
        env = self.team.row
        value = substitute(map_expr(stage.body, self.values.get), env)
        found.append(Store(place, (), value))
        self.values[Read(stage.mark, ())] = place[()]
        if stage.stage in self.places:
            buffer, at = self.place_of(stage)
            stored = Store(buffer, tuple(substitute(i, env) for i in at), place[()])
            found.append(If(equal(self.team.number, 0), (stored,)))
        return found

    def reduction(self, reduce: Reduce) -> list[Stmt]:
        """The thread's own elements added up, then those of all threads of the row."""
        kind, number = reduce.kind, len(self.registers)
        acc = self.register(f"acc{number}", (self.team.width,), reduce.value)
        here = acc[(self.v,)]
        start = Store(acc, (self.v,), identity_element(kind, acc.dtype))
        found: list[Stmt] = [loop(self.v, self.team.width, start, kind="vector")]
        found += self.each(
            lambda n: Store(acc, (self.v,), combine(kind, here, self.at(reduce.value, n)))
        )
        own = in_pairs(kind, lambda n: acc[(n,)], self.team.width)
        total, other = (self.register(f"{n}{number}", (), acc[(0,)]) for n in ("total", "other"))
        neighbours = Neighbours(self.team.lanes, total, other)
        cells = self.cells(f"cells{number}", self.team.slots, neighbours.warps, acc.dtype)
        if neighbours.warps > 1:
            self.shared.append(cells)
        own_rank = (self.team.rank,) if self.team.ranks > 1 else ()
        steps, result = neighbours.in_block(
            kind, self.team.thread, lambda n: Read(cells, (*own_rank, self.team.slot, as_expr(n)))
        )
        found += [Store(total, (), own), *steps]
        if self.team.ranks > 1:
            totals = self.cells(f"totals{number}", 1, 1, acc.dtype)
            self.shared.append(totals)
            zero = as_expr(0)
            leave = Store(totals, (self.team.rank, zero, zero), result)
            found += [If(equal(self.team.thread, 0), (leave,)), Barrier("cluster")]
            result = in_pairs(
                kind, lambda n: Read(totals, (as_expr(n), zero, zero)), self.team.ranks
            )
        self.values[reduce] = result
        return found

    def cells(self, name: str, slots: int, count: int, dtype: DType) -> Buffer:
        """Shared memory for so many numbers of every row of a block."""
        ranked = (self.team.ranks,) if self.team.ranks > 1 else ()
        return Buffer(name, (*ranked, slots, count), dtype, scope="shared")
