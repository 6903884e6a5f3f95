"""The vectors of neighbouring results that a thread finishes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from whet.ir.affine import free_symbols
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


def unrolled(loops: tuple[tuple[Var, int], ...], stmt: Stmt) -> Stmt:
    """A statement in unrolled loops."""
    for var, extent in reversed(loops):
        stmt = loop(var, extent, stmt, kind="unroll")
    return stmt
