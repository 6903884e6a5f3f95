"""Tiles in shared memory, as leaves see them: factors, and sums."""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.dtypes import DType
from whet.ir.expr import Expr
from whet.ir.program import Buffer
from whet.schedule.families.gpu_contraction.match import Leaf


@dataclass(frozen=True)
class Factors:
    """The types of a product: both factors as they lie in shared memory, and the sums."""

    leaf: Leaf
    a: DType
    b: DType
    total: DType
    is_rounded: tuple[bool, bool] = (False, False)
    """Whether the numbers of a factor are already what products take of them."""


@dataclass(frozen=True, eq=False)
class Tile:
    """buffer[slot, row, first + column], or buffer[slot, first + column, row] if it is turned.

    The columns of a factor are its depth.
    """

    buffer: Buffer
    slot: Expr
    first: Expr | int = 0
    turned: bool = False

    def at(self, row: Expr, column: Expr) -> tuple[Expr, ...]:
        """The indices of an element."""
        place = column + self.first
        return (self.slot, place, row) if self.turned else (self.slot, row, place)
