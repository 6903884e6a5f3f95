"""Tiles of threads whose factors both lie along the depth: sums of products of their rows."""

from __future__ import annotations

from whet.ir.expr import Expr, Read, Var, cast, const
from whet.ir.program import Allocate, Buffer, Stmt, Store
from whet.schedule.families.gpu_contraction.ffma import thread_position, unrolled
from whet.schedule.families.gpu_contraction.match import VECTOR, Tiling
from whet.schedule.families.gpu_contraction.tile import Factors, Tile
from whet.schedule.program.loops import loop


class DotTiles:
    """tm x tn sums for every thread, of products of rows of a with rows of b.

    Rows of a thread are as far apart as the block has threads above, or beside, each other:
    neighbouring threads read neighbouring rows, which padding keeps in different banks.
    """

    def __init__(self, factors: Factors, t: Tiling, warp: Expr, lane: Expr) -> None:
        self.t, self.dtype = t, factors.total
        self.across, self.down = t.bn // t.tn, t.bm // t.tm
        self.x, self.y = thread_position(self.across, warp, lane)
        self.acc = Buffer("acc", (t.tm, t.tn), self.dtype, scope="register")
        self.left = Buffer("of_a", (t.tm, VECTOR), self.dtype, scope="register")
        self.right = Buffer("of_b", (t.tn, VECTOR), self.dtype, scope="register")
        self.i, self.j, self.e = Var("i"), Var("j"), Var("e")

    @property
    def registers(self) -> tuple[Buffer, ...]:
        return (self.acc,)

    def row(self, i: Expr) -> Expr:
        return self.y + i * self.down

    def column(self, j: Expr) -> Expr:
        return self.x + j * self.across

    def each(self, stmt: Stmt) -> Stmt:
        """The statement for every sum."""
        row = loop(self.j, self.t.tn, stmt, kind="unroll")
        return loop(self.i, self.t.tm, row, kind="unroll")

    def zero(self) -> tuple[Stmt, ...]:
        return (self.each(Store(self.acc, (self.i, self.j), const(0, self.dtype))),)

    def multiply(self, a: Tile, b: Tile) -> tuple[Stmt, ...]:
        """The products of a stage, whose numbers are read in vectors along the depth."""
        t, i, j = self.t, self.i, self.j
        outer, inner, q = Var("outer"), Var("inner"), Var("q")
        groups = t.bk // VECTOR
        together = unrolled(groups, VECTOR * t.tm * t.tn)
        k = (outer * together + inner) * VECTOR
        product = Read(self.left, (i, q)) * Read(self.right, (j, q))
        add = self.each(Store(self.acc, (i, j), Read(self.acc, (i, j)) + product))
        body = (
            self._loaded(self.left, a, i, self.row(i), k),
            self._loaded(self.right, b, j, self.column(j), k),
            loop(q, VECTOR, add, kind="unroll"),
        )
        group = Allocate(self.left, (Allocate(self.right, body),))
        return (loop(outer, groups // together, loop(inner, together, group, kind="unroll")),)

    def _loaded(self, factor: Buffer, tile: Tile, number: Var, row: Expr, k: Expr) -> Stmt:
        """A vector along the depth of each of a thread's rows."""
        value = cast(tile.buffer[tile.at(row, k + self.e)], self.dtype)
        vector = loop(self.e, VECTOR, Store(factor, (number, self.e), value), kind="vector")
        return loop(number, factor.shape[0], vector, kind="unroll")

    def share(self, sums: Tile) -> list[Stmt]:
        """The sums, where other threads see them."""
        i, j = self.i, self.j
        at = sums.at(self.row(i), self.column(j))
        return [self.each(Store(sums.buffer, at, Read(self.acc, (i, j))))]
