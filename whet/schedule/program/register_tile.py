"""The register tile: the micro-kernel that sums of products share.

acc[mr, nv, lanes] = 0
for k...:  acc[i, v, :] += a[row i, k] * b[k, v, :]      (a broadcast, b a vector load)
finish(acc)

A long sum is made of blocks, because the bound on the rounding error of a running sum grows with
its number of terms, that of sums of blocks with their length plus their number (Higham, Accuracy
and Stability of Numerical Algorithms, section 4.2):

total[mr, nv, lanes] = 0
for block...:
  acc[...] = 0
  for k in block...:  acc[i, v, :] += a[row i, k] * b[k, v, :]
  total[...] += acc[...]
finish(total)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.ir.affine import substitute
from whet.ir.expr import Expr, Read, Var, as_expr, call, const
from whet.ir.program import Allocate, Buffer, If, Loop, Prefetch, Stmt, Store, substitute_block
from whet.schedule.program.loops import loop

LINE_BYTES = 64
"""Bytes that a hint brings."""
ROWS_AHEAD = 24
"""How many steps before they are read rows are asked for that lie far apart."""

Loops = Sequence[tuple[Var, int]]
"""Variables and extents of loops, outermost first."""
Conditions = Mapping[Var, Expr]
"""When a step of a loop is needed, by its variable."""


@dataclass(frozen=True)
class RegisterTile:
    """mr rows of nv vectors, all in registers; i, v and lane are the positions within.

    Besides the sums, registers hold the vectors of b and one number of a, or, `by_vector`, the
    numbers of a and one vector of b: fewer if a tile has more vectors than rows.
    """

    mr: int
    nv: int
    lanes: int
    by_vector: bool = False
    i = Var("i")
    v = Var("v")
    lane = Var("lane")

    @property
    def width(self) -> int:
        return self.nv * self.lanes

    @property
    def column(self) -> Expr:
        """The position within a panel."""
        return self.v * self.lanes + self.lane

    def each(self, *body: Stmt) -> Stmt:
        """The statements for every vector of the tile.

        A condition that is the only one of them speaks of neither row nor lane: it is asked once
        for all rows of a vector.
        """
        if isinstance(body[0], If):
            return loop(self.v, self.nv, self._rows(body[0]), kind="unroll")
        vector = loop(self.lane, self.lanes, *body, kind="vector")
        if self.by_vector:
            rows = loop(self.i, self.mr, vector, kind="unroll")
            return loop(self.v, self.nv, rows, kind="unroll")
        return loop(self.i, self.mr, loop(self.v, self.nv, vector, kind="unroll"), kind="unroll")

    def _rows(self, stmt: Stmt) -> Stmt:
        """The statement for all rows of a vector."""
        if isinstance(stmt, If):
            then, other = (tuple(map(self._rows, block)) for block in (stmt.then, stmt.other))
            return If(stmt.condition, then, other)
        vector = loop(self.lane, self.lanes, stmt, kind="vector")
        return loop(self.i, self.mr, vector, kind="unroll")

    def multiply(
        self,
        a: Expr,
        b: Expr,
        reduced: Loops,
        finish: Callable[[Expr], Stmt],
        beside: Sequence[Stmt] = (),
        terms: int = 0,
        needed: Conditions | None = None,
        results: int | None = None,
    ) -> Stmt:
        """The tile of sums of a * b over the reduced loops, outermost first.

        `finish` says what happens to each vector of the result, or makes so many vectors of
        `results` of those of a row; `beside` runs once in every
        step of the innermost loop; no running sum has more than `terms` terms (0: any number);
        steps of loops that are not `needed` are left out.
        """
        acc = Buffer("acc", (self.mr, self.nv, self.lanes), a.dtype, scope="register")
        at = (self.i, self.v, self.lane)
        update = (*beside, self.each(Store(acc, at, acc[at] + a * b)))
        zero = self.each(Store(acc, at, const(0, acc.dtype)))
        finished = replace(self, nv=self.nv if results is None else results)
        cut = cut_of([extent for _, extent in reduced], terms)
        if cut is None:
            return Allocate(
                acc, (zero, *nested(reduced, update, needed), finished.each(finish(acc[at])))
            )
        place, within = cut
        (var, extent), inner = reduced[place], reduced[place + 1 :]
        first, step = Var(f"{var.name}b"), Var(f"{var.name}r")
        update = only_needed(var, nested(inner, update, needed), needed)
        update = substitute_block(update, {var: first * within + step})
        if extent % within:
            count = call("min", const(within, var.dtype), extent - first * within)
            one: Stmt = Loop(step, count, update)
        else:
            one = loop(step, within, *update)
        total = Buffer("total", acc.shape, acc.dtype)
        added = self.each(Store(total, at, total[at] + acc[at]))
        summed = Allocate(acc, (zero, one, added))
        outer = [*reduced[:place], (first, -(-extent // within))]
        blocks = nested(outer, (summed,), needed)
        none = self.each(Store(total, at, const(0, acc.dtype)))
        return Allocate(total, (none, *blocks, finished.each(finish(total[at]))))


def next_panel(
    panels: Buffer, panel: tuple[Expr, ...], reduced: Loops, tiles: tuple[Expr, int]
) -> tuple[Stmt, ...]:
    """Hints for the panel after this one, which lies behind it in memory.

    In every step of its innermost loop a tile asks for one line, so that as many tiles as a
    panel has lines in a row together ask for all of it; where there are fewer, each asks for all.
    """
    io, count = tiles
    per_line = LINE_BYTES // panels.dtype.itemsize
    lines = -(-panels.shape[-1] // per_line)
    start = (*panel[:-1], panel[-1] + 1)
    depth = tuple(var for var, _ in reduced)
    if count < lines:
        return tuple(
            Prefetch(panels, (*start, *depth, as_expr(n * per_line))) for n in range(lines)
        )
    line: Expr = io % lines
    for var, extent in reduced:
        line = line * extent + var
    zeros = (as_expr(0),) * len(reduced)
    return (Prefetch(panels, (*start, *zeros, line * per_line)),)


def rows_ahead(b: Expr, tile: RegisterTile, reduced: Loops) -> tuple[Stmt, ...]:
    """Hints for what a tile reads of b some steps later, where b lies as the caller left it.

    Its rows are mostly a page or more apart, so what is waited for is the address (128x3072x768 on
    pages of 4 KiB: 6.8 ms without hints, 6.1, 5.9, 5.8 with 8, 24, 64 rows ahead), and no further
    than ROWS_AHEAD, because rows a power of two apart share few sets of the cache.
    """
    if not isinstance(b, Read) or not isinstance(b.tensor, Buffer):
        return ()
    innermost = reduced[-1][0]
    later: dict[Expr, Expr] = {innermost: innermost + ROWS_AHEAD}
    per_line = LINE_BYTES // b.dtype.itemsize
    firsts = range(0, tile.width, per_line)
    made: list[Stmt] = []
    for n in firsts:
        place = {**later, tile.v: as_expr(n // tile.lanes), tile.lane: as_expr(n % tile.lanes)}
        made.append(Prefetch(b.tensor, tuple(substitute(i, place) for i in b.indices)))
    return tuple(made)


def nested(
    reduced: Loops, body: Sequence[Stmt], needed: Conditions | None = None
) -> tuple[Stmt, ...]:
    """The statements inside all the loops."""
    made = tuple(body)
    for var, extent in reversed(reduced):
        made = (loop(var, extent, *only_needed(var, made, needed)),)
    return made


def only_needed(var: Var, body: tuple[Stmt, ...], needed: Conditions | None) -> tuple[Stmt, ...]:
    """The statements of a loop, in steps that are needed."""
    return (If(needed[var], body),) if needed and var in needed else body


def cut_of(extents: Sequence[int], terms: int) -> tuple[int, int] | None:
    """Which of the reduced loops is cut, and into blocks of what length; None if none is.

    Those inside it together have few enough terms, and blocks are about equally long.

        [3, 300] at 200 terms  ->  the second, 150          [40, 9] at 20 terms  ->  the first, 2
    """
    if not 0 < terms < math.prod(extents):
        return None
    at, inside = len(extents) - 1, 1
    while inside * extents[at] <= terms:
        inside *= extents[at]
        at -= 1
    return at, -(-extents[at] // -(-extents[at] // (terms // inside)))
