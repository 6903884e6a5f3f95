"""Tiles of threads: multiply-adds of numbers that each thread reads from shared memory."""

from __future__ import annotations

from collections.abc import Callable

from whet.ir.expr import Expr, Read, Var, cast, const
from whet.ir.program import Allocate, Buffer, Stmt, Store
from whet.schedule.families.gpu_contraction.match import VECTOR, GpuContraction, Tiling
from whet.schedule.program.loops import loop

WIDE = 8
"""Threads of a warp beside each other along the columns: their vectors are 128 bytes of a row."""
UNROLLED = 1024
"""Multiply-adds that are written out at most."""


class ThreadTiles:
    """tm rows of tn / 4 vectors of columns for every thread.

    The rows of a thread are as far apart as the block has threads above each other, and so are
    its vectors, so that neighbouring threads read neighbouring vectors.
    """

    def __init__(self, form: GpuContraction, t: Tiling, warp: Var, lane: Var) -> None:
        self.form, self.t = form, t
        self.across, self.down = t.bn // t.tn, t.bm // t.tm
        wide = min(self.across, WIDE)
        high, warps_across = 32 // wide, self.across // wide
        self.x = warp % warps_across * wide + lane % wide
        self.y = warp // warps_across * high + lane // wide
        self.vectors = t.tn // VECTOR
        dtype = form.dtype
        self.acc = Buffer("acc", (t.tm, self.vectors, VECTOR), dtype, scope="register")
        self.left = Buffer("of_a", (t.tm, VECTOR), dtype, scope="register")
        self.right = Buffer("of_b", (self.vectors, VECTOR), dtype, scope="register")
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
        vectors = loop(self.j, self.vectors, vector, kind="unroll")
        return loop(self.i, self.t.tm, vectors, kind="unroll")

    def zero(self) -> tuple[Stmt, ...]:
        at = (self.i, self.j, self.e)
        return (self.each(Store(self.acc, at, const(0, self.acc.dtype))),)

    def multiply(self, a: Buffer, b: Buffer, slot: Expr) -> tuple[Stmt, ...]:
        """The products of a stage: numbers of a are read in vectors along the depth."""
        t, i, j, e = self.t, self.i, self.j, self.e
        outer, inner, q = Var("outer"), Var("inner"), Var("q")
        groups = t.bk // VECTOR
        together = _unrolled(groups, VECTOR * t.tm * t.tn)
        k = (outer * together + inner) * VECTOR
        load_left = loop(
            i, t.tm,
            loop(e, VECTOR, Store(self.left, (i, e), self._wide(a[slot, self.row(i), k + e])),
                 kind="vector"),
            kind="unroll",
        )  # fmt: skip
        number = self._wide(b[slot, k + q, self.column(j) + e])
        load_right = loop(
            j, self.vectors,
            loop(e, VECTOR, Store(self.right, (j, e), number), kind="vector"),
            kind="unroll",
        )  # fmt: skip
        at = (i, j, e)
        product = Read(self.left, (i, q)) * Read(self.right, (j, e))
        add = self.each(Store(self.acc, at, Read(self.acc, at) + product))
        column = loop(q, VECTOR, Allocate(self.right, (load_right, add)), kind="unroll")
        group = Allocate(self.left, (load_left, column))
        return (loop(outer, groups // together, loop(inner, together, group, kind="unroll")),)

    def _wide(self, number: Expr) -> Expr:
        return cast(number, self.form.dtype)

    def results(self, store: Callable[[Expr, Expr, Callable[[Expr], Expr]], Stmt]) -> list[Stmt]:
        """The vectors of sums, each stored at its row and first column."""
        i, j = self.i, self.j
        stored = store(self.row(i), self.column(j), lambda e: Read(self.acc, (i, j, e)))
        return [loop(i, self.t.tm, loop(j, self.vectors, stored, kind="unroll"), kind="unroll")]

    def share(self, sums: Buffer, rank: Expr) -> list[Stmt]:
        """The sums, where other threads see them."""
        i, j, e = self.i, self.j, self.e
        at = (rank, self.row(i), self.column(j) + e)
        return [self.each(Store(sums, at, Read(self.acc, (i, j, e))))]


def _unrolled(groups: int, products: int) -> int:
    """Groups of so many multiply-adds that are written out together."""
    counts = [n for n in range(1, groups + 1) if groups % n == 0 and n * products <= UNROLLED]
    return max(counts, default=1)
