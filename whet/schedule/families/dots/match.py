"""The sketch of inner products: a register tile whose lanes run along what is summed.

    y[i, j] = epilogue(sum(a[i, k] * b[j, k] for k))          few columns j, long rows k

    parallel p over (batch, blocks of rows):
      for tiles of columns: for tiles of the block:
        acc[mr, nc, lanes] = 0
        for k in vectors:  acc[i, j, :] += a[row i, k ...] * b[column j, k ...]
        sums[i, j] = sum of the lanes of acc[i, j, :]
        y[rows, columns] = epilogue(sums)

Few columns leave lanes of the contraction sketch idle, and lanes along the rows have to be turned
first.  Here both factors are read as they lie.  A b that lies another way is stored that way if it
is constant, and copied ahead if it is small.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Expr, Read
from whet.ir.tensor import Compute
from whet.schedule.families.contraction.match import Contraction, find_contraction
from whet.tasks.task import Task

SHORTEST_ROW = 16
SMALL_PART = 4
"""A factor that is so many times smaller than the other one may be copied."""


@dataclass(frozen=True, eq=False)
class Dots:
    """A contraction of which the rows of both factors are summed along what is contiguous."""

    c: Contraction
    a: Read
    b: Read
    """Where it lies, over the merged axes of the contraction."""
    packed: bool
    """Whether b has to be stored another way."""

    @property
    def along(self) -> Axis:
        """The axis that lanes run along."""
        return self.c.k_axes[-1]

    @property
    def packing(self) -> Compute:
        """b as [outer..., column, k...]"""
        axes = (*self.c.outer, self.c.vector, *self.c.k_axes)
        fresh = tuple(Axis(f"p{n}", axis.extent) for n, axis in enumerate(axes))
        return Compute("columns", fresh, substitute(self.b, dict(zip(axes, fresh))))


@dataclass(frozen=True)
class DotTiling:
    """The holes: rows and columns of a tile, lanes, and tiles per block."""

    mr: int
    nc: int
    lanes: int
    tiles_per_block: int


def find_dots(task: Task) -> Dots | None:
    """The inner products that the task is, or None.

    A single row shares nothing with others, and is as well off in the row sketch.
    """
    c = find_contraction(task)
    if c is None or c.k_axes[-1].extent < SHORTEST_ROW or min(c.rows, c.columns) < 2:
        return None
    a, b = c.a, substitute(c.b, c.k_values)
    if not (_is_flat(a) and _is_flat(b)):
        return None
    assert isinstance(a, Read)
    assert isinstance(b, Read)
    if not _lies_along(a, c.k_axes[-1]):
        return None
    packed = not _lies_along(b, c.k_axes[-1])
    small = SMALL_PART * b.tensor.type.size <= a.tensor.type.size
    if packed and not (c.b_is_constant or small):
        return None
    return Dots(c, a, b, packed)


def _is_flat(e: Expr) -> bool:
    return isinstance(e, Read) and len(e.indices) == 1


def _lies_along(read: Read, axis: Axis) -> bool:
    form = affine(read.indices[0])
    others = (atom for atom, _ in form.terms if atom is not axis)
    return form.coefficient(axis) == 1 and not any(axis in free_symbols(x) for x in others)
