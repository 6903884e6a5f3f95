"""The end of a tile: sums of all blocks added up and made results by the rest of the stage.

while terms are multiplied:  held[n] = what the rest of the stage reads
total[n] = sums of all blocks        for all vectors n, so that loads do not wait for stores
arrive                               others need these sums no more
y[n] = rest(total[n], held[n])
await the others, whose sums may still be read
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from whet.core.dtypes import i64
from whet.ir.affine import free_symbols, substitute
from whet.ir.expr import Axis, Binary, Expr, Read, Reduce, Select, Var, all_of, call, const
from whet.ir.program import Allocate, Block, Buffer, If, Stmt, Store, substitute_block
from whet.ir.tensor import subexpressions
from whet.schedule.families.gpu_contraction.match import VECTOR, Span
from whet.schedule.families.gpu_contraction.vectors import Vectors, unrolled
from whet.schedule.program.access import map_expr, reads_constants_alone
from whet.schedule.program.flat import FlatStage
from whet.schedule.program.loops import loop, split_index
from whet.tasks.task import Task

AHEAD = {False: 16, True: 40}
"""Registers that hold operands of the end while terms are multiplied, at most, for threads and for
warps: threads share a processor with more of their kind."""
BEHIND = 32
"""Registers that hold them afterwards, beside sums that are in registers all the time."""
SUMS_AND_HELD = 96
"""Registers that hold them afterwards together with sums that come from shared memory."""

NONE = const(0, i64)
_PLACE = Var("place")
"""The place of a result in its vector."""
Total = Callable[[Expr], Expr]
"""The sum of a vector's result by its place in the vector."""


@dataclass(frozen=True, eq=False)
class Held:
    """Operands of the end that are loaded before they are needed."""

    early: Block = ()
    """Loads of constants, which may stand in front of all else."""
    ahead: Block = ()
    """Loads that go on while terms are multiplied."""
    behind: Block = ()
    """Loads that begin when the registers of factors are free."""
    buffers: tuple[Buffer, ...] = ()
    reads: Mapping[Expr, Expr] = field(default_factory=dict)
    """What is read from registers instead of memory."""

    def around(self, body: Block) -> Block:
        """Statements that use them."""
        for buffer in self.buffers:
            body = (Allocate(buffer, body),)
        return body


@dataclass(frozen=True, eq=False)
class Finish:
    """The results of a block: those of a tile of rows and columns of a stage."""

    stage: FlatStage
    reduce: Reduce
    """The sum of the stage."""
    row_axes: tuple[Axis, ...]
    column: Axis
    rows: Span
    columns: Span
    first_row: Expr
    first_column: Expr
    outer: Mapping[Expr, Expr]

    def store(self, v: Vectors, total: Total, held: Held) -> Stmt:
        """The results of all vectors; what lies outside is left out.

        Operands that were not loaded before are loaded here, those of several vectors together.
        """
        missing = [read for read in self._operands() if read not in held.reads]
        if not missing:
            return self._store(v, total, held.reads)
        parts = v.in_parts(BEHIND // (VECTOR * len(missing)))
        loads = [self._load(parts.vectors, r, f"late{n}") for n, r in enumerate(missing)]
        reads: dict[Expr, Expr] = dict(held.reads)
        reads |= {r: place for r, (_, _, place) in zip(missing, loads)}
        body: Block = (
            *(load for _, load, _ in loads), self._store(parts.vectors, total, reads)
        )  # fmt: skip
        for buffer, _, _ in loads:
            body = (Allocate(buffer, body),)
        (part,) = substitute_block(body, parts.numbered)
        return unrolled((parts.loop,), part)

    def _store(self, v: Vectors, total: Total, reads: Mapping[Expr, Expr]) -> Stmt:
        e = Var("e")
        env = self._position(v, e)

        def known(x: Expr) -> Expr | None:
            if x is self.reduce:
                return total(e)
            return substitute(reads[x], {_PLACE: e}) if x in reads else None

        address = substitute(self.stage.address, env)
        value = substitute(map_expr(self.stage.body, known), env)
        stored: Stmt = Store(self.stage.target, (address,), value)
        first, count = self.first_column + v.column, self.columns.extent
        inside = list(v.inside)
        if self.rows.overruns:
            inside.append(self.first_row + v.row < self.rows.extent)
        if self.columns.overruns and count % VECTOR:
            stored = loop(e, VECTOR, If(first + e < count, (stored,)), kind="unroll")
        else:
            if self.columns.overruns:
                inside.append(first < count)
            stored = loop(e, VECTOR, stored, kind="vector")
        return unrolled(v.loops, If(all_of(inside), (stored,)) if inside else stored)

    # -------------------------------------------------------------------------- loads in advance
    def held(self, v: Vectors, task: Task, free: int, ahead: int = 0) -> Held:
        """What can be loaded before sums are there: constants first, then what fits in `ahead`
        registers while terms are multiplied, then what fits in `free` ones."""
        early: list[Stmt] = []
        during: list[Stmt] = []
        behind: list[Stmt] = []
        buffers: list[Buffer] = []
        reads: dict[Expr, Expr] = {}
        found = sorted(self._operands(), key=lambda r: not reads_constants_alone(r, task))
        for number, read in enumerate(found):
            buffer, load, place = self._load(v, read, f"held{number}")
            size = buffer.type.size * max(buffer.dtype.itemsize // 4, 1)
            if size <= ahead:
                ahead -= size
                (early if reads_constants_alone(read, task) else during).append(load)
            elif size <= free:
                free -= size
                behind.append(load)
            else:
                continue
            buffers.append(buffer)
            reads[read] = place
        return Held(tuple(early), tuple(during), tuple(behind), tuple(buffers), reads)

    def _operands(self) -> list[Read]:
        """What the stage always reads, at places that it does not read itself."""
        found: dict[Read, None] = {}
        waiting: list[Expr] = [self.stage.body]
        while waiting:
            e = waiting.pop()
            if e is self.reduce or isinstance(e, Select):
                continue
            if isinstance(e, Binary) and e.op in ("and", "or"):
                continue
            if isinstance(e, Read):
                if not any(isinstance(x, Read) for i in e.indices for x in subexpressions(i)):
                    found[e] = None
                continue
            waiting += e.children()
        return list(found)

    def _load(self, v: Vectors, read: Read, name: str) -> tuple[Buffer, Stmt, Expr]:
        """A buffer for an operand of all vectors, its load, and how an element is read.

        Nothing is asked first, so that all loads are under way together: what lies outside has the
        place of something inside.
        """
        assert isinstance(read.tensor, Buffer)
        e = Var("e")
        env = self._position(v, e, inside=True)
        at = tuple(substitute(i, env) for i in read.indices)
        loops = v.needed(*at)
        is_vector = any(self.column in free_symbols(i) for i in read.indices)
        dims = (*(extent for _, extent in loops), VECTOR if is_vector else 1)
        buffer = Buffer(name, dims, read.tensor.dtype, scope="register")
        variables = tuple(var for var, _ in loops)
        load: Stmt = Store(buffer, (*variables, e if is_vector else NONE), Read(read.tensor, at))
        if is_vector:
            load = loop(e, VECTOR, load, kind="vector")
        place = Read(buffer, (*variables, _PLACE if is_vector else NONE))
        return buffer, unrolled(loops, load), place

    def _position(self, v: Vectors, e: Expr, *, inside: bool = False) -> dict[Expr, Expr]:
        """The axes at an element of a vector, which is moved inside where it may lie outside."""
        row, column = self.first_row + v.row, self.first_column + v.column
        count = self.columns.extent
        if inside and self.rows.overruns:
            row = call("min", row, self.rows.extent - 1)
        if inside and self.columns.overruns:
            whole = count % VECTOR == 0
            column = (
                call("min", column, count - VECTOR) + e
                if whole
                else call("min", column + e, count - 1)
            )
        else:
            column = column + e
        return {**self.outer, **split_index(row, self.row_axes), self.column: column}


def shared_vectors(
    rows: int, columns: int, rank: Expr, splits: int, thread: Expr, threads: int
) -> Vectors:
    """The vectors of a tile that a thread of one of `splits` blocks adds up.

    Where threads fill whole rows, blocks share rows, and a thread stays in its column, so that
    what depends on it is computed and loaded once.
    """
    n, wide = Var("n"), columns // VECTOR
    by_rows = threads % wide == 0
    number_of = rows if by_rows else rows * wide
    at_once = threads // wide if by_rows else threads
    share = -(-number_of // splits)
    within = n * at_once + (thread // wide if by_rows else thread)
    number = rank * share + within
    inside: list[Expr] = []
    if share % at_once:
        inside.append(within < share)
    if number_of % splits:
        inside.append(number < number_of)
    if inside:
        number = call("min", number, number_of - 1)
    loops = ((n, -(-share // at_once)),)
    if by_rows:
        return Vectors(loops, number, thread % wide * VECTOR, tuple(inside))
    return Vectors(loops, number // wide, number % wide * VECTOR, tuple(inside))


def add_up(v: Vectors, sums: Buffer, splits: int) -> tuple[Buffer, Stmt, Total]:
    """Registers for the sums of a thread's vectors, filled with those of all blocks.

    total[n, e] = sums[0, row, column + e] + sums[1, row, column + e] + ...
    """
    e = Var("e")
    ((n, count),) = v.loops
    total = Buffer("total", (count, VECTOR), sums.dtype, scope="register")
    value: Expr = sums[0, v.row, v.column + e]
    for other in range(1, splits):
        value = value + sums[other, v.row, v.column + e]
    added = loop(e, VECTOR, Store(total, (n, e), value), kind="vector")
    return total, unrolled(v.loops, added), lambda place: Read(total, (n, place))
