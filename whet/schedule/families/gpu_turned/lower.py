"""Turned values with a given tile as code of threads (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Var, all_of, elements
from whet.ir.program import Buffer, If, Program, Stmt, Store
from whet.ir.threads import WARP, Barrier
from whet.schedule.families.gpu_spatial.grid import BLOCK, LANE, WARP_NUMBER, Grid
from whet.schedule.families.gpu_turned.match import GpuTurned, GpuTurnedTiling
from whet.schedule.program.access import map_expr
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of

WARPS = 8
"""Warps of a block, each of which takes every so many-th row of a tile."""
PAD_BYTES = 4
"""What is left free behind rows of a tile, so that a column of them lies in all banks."""


def counts_of(s: GpuTurned, size: int) -> tuple[Axis, ...]:
    """Numbers of tiles along every axis of the result."""
    sizes = {s.written: size, s.read: size}
    return tuple(Axis(a.name, -(-a.extent // sizes.get(a, 1))) for a in s.stage.axes)


def lower_gpu_turned(s: GpuTurned, t: GpuTurnedTiling, name: str) -> Kernel:
    """The kernel of the stage with the given tile."""
    return _Writer(s, t.size, t.trigger).kernel(name)


class _Writer:
    def __init__(self, s: GpuTurned, size: int, trigger: int) -> None:
        self.s, self.size, self.trigger = s, size, trigger
        self.row, self.part = Var("row"), Var("of_row")
        self.counts = counts_of(s, size)
        numbers = split_index(BLOCK, self.counts)
        sizes = {s.written: size, s.read: size}
        self.first: dict[Axis, Expr] = {
            axis: start_of(numbers[count], sizes.get(axis, 1), axis.extent)
            for axis, count in zip(s.stage.axes, self.counts)
        }
        self.cells = {
            read: Buffer(
                f"cell{n}", (size, size + max(PAD_BYTES // read.dtype.itemsize, 1)), read.dtype,
                scope="shared",
            )
            for n, read in enumerate(s.turned)
        }  # fmt: skip

    def kernel(self, name: str) -> Kernel:
        s = self.s
        code = [self.loads(), Barrier("block"), self.stores()]
        grid = Grid(elements(self.counts), WARPS * WARP, self.trigger)
        whole = (grid.around(code, shared=list(self.cells.values())),)
        inputs, arguments = arguments_of(s.task, whole, {})
        return Kernel(Program(name, inputs, (s.stage.target,), whole), arguments, s.task.outputs)

    @property
    def across(self) -> Expr:
        """The place of a thread within a row of the tile."""
        return self.part * WARP + LANE

    @property
    def down(self) -> Expr:
        """The row of the tile."""
        return self.row * WARPS + WARP_NUMBER

    def loads(self) -> Stmt:
        """The tile as operands lie in memory."""
        s, env = self.s, self.place({self.s.read: self.across, self.s.written: self.down})
        cell = (self.down, self.across)
        stores = [
            Store(buffer, cell, substitute(read, env)) for read, buffer in self.cells.items()
        ]  # fmt: skip
        return self.each(*stores, inside=self.inside(s.read, s.written))

    def stores(self) -> Stmt:
        """The results, as they lie in memory."""
        s, env = self.s, self.place({self.s.written: self.across, self.s.read: self.down})
        cell = (self.across, self.down)
        known: dict[Expr, Expr] = {read: Read(buffer, cell) for read, buffer in self.cells.items()}
        # Cells are named by variables of threads, which no axis of the stage is.
        value = substitute(map_expr(s.stage.body, known.get), env)
        store = Store(s.stage.target, (substitute(s.stage.address, env),), value)
        return self.each(store, inside=self.inside(s.written, s.read))

    def place(self, within: dict[Axis, Expr]) -> dict[Expr, Expr]:
        """The position of a thread on every axis."""
        return {axis: first + within.get(axis, 0) for axis, first in self.first.items()}

    def inside(self, across: Axis, down: Axis) -> list[Expr]:
        """What must hold where an axis is shorter than the tile."""
        places = ((across, self.across), (down, self.down))
        return [place < axis.extent for axis, place in places if axis.extent < self.size]

    def each(self, *body: Stmt, inside: list[Expr]) -> Stmt:
        """The statements for all elements of a thread."""
        stmts: tuple[Stmt, ...] = (If(all_of(inside), body),) if inside else body
        parts = loop(self.part, self.size // WARP, *stmts, kind="unroll")
        return loop(self.row, self.size // WARPS, parts, kind="unroll")
