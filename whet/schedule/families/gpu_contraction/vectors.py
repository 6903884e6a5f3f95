"""The vectors of neighbouring results that a thread finishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from whet.ir.affine import free_symbols, substitute
from whet.ir.expr import Expr, Var
from whet.ir.program import Stmt
from whet.schedule.program.loops import loop


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors by the loops over them, all of which are unrolled."""

    loops: tuple[tuple[Var, int], ...]
    row: Expr
    column: Expr
    """The first column of a vector; both are places within the tile of the block."""
    inside: tuple[Expr, ...] = ()
    """What must hold for a vector to be this thread's; if it does not, its place is another
    one's, which may be read."""

    @property
    def count(self) -> int:
        return prod(extent for _, extent in self.loops)

    def needed(self, *expressions: Expr) -> tuple[tuple[Var, int], ...]:
        """The loops that expressions over row and column depend on."""
        found = frozenset().union(*map(free_symbols, expressions))
        return tuple((var, extent) for var, extent in self.loops if var in found)

    def in_parts(self, most: int) -> Parts:
        """The vectors in parts of at most so many where that is possible."""
        (n, extent), *others = self.loops
        beside = prod(extent for _, extent in others)
        fits = [g for g in range(1, extent + 1) if extent % g == 0 and g * beside <= most]
        size = max(fits, default=1)
        part, within = Var("part"), Var("of_part")
        numbered: dict[Expr, Expr] = {n: part * size + within}
        made = Vectors(
            ((within, size), *others),
            substitute(self.row, numbered),
            substitute(self.column, numbered),
            tuple(substitute(e, numbered) for e in self.inside),
        )
        return Parts((part, extent // size), made, numbered)


@dataclass(frozen=True, eq=False)
class Parts:
    """Vectors part by part: the loop over parts, the vectors of one, and what the loop variables of
    all vectors are in it."""

    loop: tuple[Var, int]
    vectors: Vectors
    numbered: Mapping[Expr, Expr]


def unrolled(loops: tuple[tuple[Var, int], ...], stmt: Stmt) -> Stmt:
    """A statement in unrolled loops."""
    for var, extent in reversed(loops):
        stmt = loop(var, extent, stmt, kind="unroll")
    return stmt
