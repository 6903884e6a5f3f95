"""Tiles of threads: multiply-adds of numbers that each thread reads from shared memory."""

from __future__ import annotations

from collections.abc import Callable

from whet.ir.expr import Expr, Read, Var, cast, const
from whet.ir.program import Allocate, Buffer, Stmt, Store
from whet.ir.threads import WARP
from whet.schedule.families.gpu_contraction.match import VECTOR, Tiling
from whet.schedule.families.gpu_contraction.tile import Factors, Tile
from whet.schedule.families.gpu_contraction.vectors import Vectors
from whet.schedule.program.loops import loop

WIDE = 8
"""Threads of a warp beside each other along the columns: their vectors are 128 bytes of a row."""
UNROLLED = 1024
"""Multiply-adds that are written out at most."""


def thread_position(across: int, warp: Expr, lane: Expr) -> tuple[Expr, Expr]:
    """Column and row of a thread among those of a block, so many of which are beside each other."""
    wide = min(across, WIDE)
    high, warps_across = WARP // wide, across // wide
    return warp % warps_across * wide + lane % wide, warp // warps_across * high + lane // wide


class ThreadTiles:
    """tm rows of tn / 4 vectors of columns for every thread.

    The rows of a thread are as far apart as the block has threads above each other, and so are
    its vectors, so that neighbouring threads read neighbouring vectors.
    """

    def __init__(
        self, factors: Factors, t: Tiling, warp: Expr, lane: Expr, name: str = "acc"
    ) -> None:
        self.t, self.dtype = t, factors.total
        self.across, self.down = t.bn // t.tn, t.bm // t.tm
        self.x, self.y = thread_position(self.across, warp, lane)
        self.runs = t.tn // VECTOR
        self.acc = Buffer(name, (t.tm, self.runs, VECTOR), self.dtype, scope="register")
        self.left = Buffer("of_a", (t.tm, VECTOR), self.dtype, scope="register")
        self.right = Buffer("of_b", (self.runs, VECTOR), self.dtype, scope="register")
        self.i, self.j, self.e = Var("i"), Var("j"), Var("e")

    @property
    def registers(self) -> tuple[Buffer, ...]:
        return (self.acc,)

    def row(self, i: Expr) -> Expr:
        return self.y + i * self.down

    def column(self, j: Expr) -> Expr:
        """The first column of a vector."""
        return (self.x + j * self.across) * VECTOR

    def each(self, stmt: Stmt) -> Stmt:
        """The statement for every vector of the tile."""
        vector = loop(self.e, VECTOR, stmt, kind="vector")
        vectors = loop(self.j, self.runs, vector, kind="unroll")
        return loop(self.i, self.t.tm, vectors, kind="unroll")

    def zero(self) -> tuple[Stmt, ...]:
        at = (self.i, self.j, self.e)
        return (self.each(Store(self.acc, at, const(0, self.acc.dtype))),)

    def scaled(self, factor: Callable[[Expr], Expr]) -> Stmt:
        """Every sum times a factor, given by its row."""
        at = (self.i, self.j, self.e)
        by = factor(self.row(self.i))
        return self.each(Store(self.acc, at, Read(self.acc, at) * by))

    def multiply(self, a: Tile, b: Tile) -> tuple[Stmt, ...]:
        """The products of a stage: numbers of a are read in vectors along the depth, and those of
        b, which is turned, in vectors along the columns."""
        t, i, j, e = self.t, self.i, self.j, self.e
        outer, inner, q = Var("outer"), Var("inner"), Var("q")
        groups = t.bk // VECTOR
        together = unrolled(groups, VECTOR * t.tm * t.tn)
        k = (outer * together + inner) * VECTOR
        number = self._wide(a, self.row(i), k + e)
        load_left = loop(
            i, t.tm,
            loop(e, VECTOR, Store(self.left, (i, e), number), kind="vector"),
            kind="unroll",
        )  # fmt: skip
        number = self._wide(b, self.column(j) + e, k + q)
        load_right = loop(
            j, self.runs,
            loop(e, VECTOR, Store(self.right, (j, e), number), kind="vector"),
            kind="unroll",
        )  # fmt: skip
        at = (i, j, e)
        product = Read(self.left, (i, q)) * Read(self.right, (j, e))
        add = self.each(Store(self.acc, at, Read(self.acc, at) + product))
        column = loop(q, VECTOR, Allocate(self.right, (load_right, add)), kind="unroll")
        group = Allocate(self.left, (load_left, column))
        return (loop(outer, groups // together, loop(inner, together, group, kind="unroll")),)

    def _wide(self, tile: Tile, row: Expr, k: Expr) -> Expr:
        return cast(tile.buffer[tile.at(row, k)], self.dtype)

    @property
    def vectors(self) -> Vectors:
        """The vectors of sums."""
        loops = ((self.i, self.t.tm), (self.j, self.runs))
        return Vectors(loops, self.row(self.i), self.column(self.j))

    def total(self, place: Expr) -> Expr:
        """A sum of a vector."""
        return Read(self.acc, (self.i, self.j, place))

    def share(self, sums: Tile) -> list[Stmt]:
        """The sums, where other threads see them."""
        i, j, e = self.i, self.j, self.e
        at = sums.at(self.row(i), self.column(j) + e)
        return [self.each(Store(sums.buffer, at, Read(self.acc, (i, j, e))))]


def unrolled(groups: int, products: int) -> int:
    """Groups of so many multiply-adds that are written out together."""
    counts = [n for n in range(1, groups + 1) if groups % n == 0 and n * products <= UNROLLED]
    return max(counts, default=1)
