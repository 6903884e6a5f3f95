"""The register tile: the micro-kernel that sums of products share.

acc[mr, nv, lanes] = 0
for k...:  acc[i, v, :] += a[row i, k] * b[k, v, :]      (a broadcast, b a vector load)
finish(acc)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whet.ir.expr import Expr, Var, const
from whet.ir.program import Allocate, Buffer, Stmt, Store, substitute_block
from whet.schedule.nest import loop


@dataclass(frozen=True)
class RegisterTile:
    """mr rows of nv vectors, all in registers; i, v and lane are the positions within."""

    mr: int
    nv: int
    lanes: int
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
        """The statements for every vector of the tile."""
        vector = loop(self.lane, self.lanes, *body, kind="vector")
        return loop(self.i, self.mr, loop(self.v, self.nv, vector, kind="unroll"), kind="unroll")

    def multiply(
        self,
        a: Expr,
        b: Expr,
        reduced: Sequence[tuple[Var, int]],
        finish: Callable[[Expr], Stmt],
        unroll: int = 1,
        beside: Sequence[Stmt] = (),
    ) -> Stmt:
        """The tile of sums of a * b over the reduced loops, outermost first.

        `finish` says what happens to each vector of the result; `beside` runs once in every
        step of the innermost loop.
        """
        acc = Buffer("acc", (self.mr, self.nv, self.lanes), a.dtype, scope="register")
        at = (self.i, self.v, self.lane)
        update = (*beside, self.each(Store(acc, at, acc[at] + a * b)))
        for n, (var, extent) in enumerate(reversed(reduced)):
            update = (repeated(var, extent, update, unroll if n == 0 else 1),)
        zero = self.each(Store(acc, at, const(0, acc.dtype)))
        return Allocate(acc, (zero, *update, self.each(finish(acc[at]))))


def repeated(var: Var, extent: int, body: Sequence[Stmt], unroll: int) -> Stmt:
    """A loop whose body is written several times when the extent allows."""
    if unroll <= 1 or extent % unroll:
        return loop(var, extent, *body)
    outer, inner = Var(f"{var.name}o"), Var(f"{var.name}i")
    copies = substitute_block(body, {var: outer * unroll + inner})
    return loop(outer, extent // unroll, loop(inner, unroll, *copies, kind="unroll"))
