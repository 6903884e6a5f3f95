"""The row sketch: chains of reductions along contiguous rows (softmax, normalizations, norms).

    parallel r over rows:
      for each stage in order:
        a reduction:    acc[u, lanes] over the row, then across lanes to one number
        element-wise:   the row of an output, or a scratch row when later stages read it

All stages share their leading axes (the rows) and read each other at the same row.  What a stage
gives per row stays in a register or in a scratch row, so the row is in cache from its first to
its last use.  Short rows go through each stage several at a time: a reduction ends in operations
that wait for each other, and those of the next row do not wait for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.types import Shape
from whet.ir.expr import Reduce
from whet.ir.tensor import Compute, stages, subexpressions
from whet.tasks.rowshape import common_rows
from whet.tasks.task import Task

TOGETHER_BYTES = 16 << 10
"""Bytes of the rows that go through each stage together, with what is kept of them: they stay in
the first cache meanwhile."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A task whose stages share `row_rank` leading axes."""

    task: Task
    stages: tuple[Compute, ...]
    row_rank: int

    @property
    def row_shape(self) -> Shape:
        return self.stages[-1].shape[: self.row_rank]


def find_rows(task: Task) -> Rows | None:
    """The task as stages over common rows, or None."""
    found = tuple(t for t in stages(task.outputs) if isinstance(t, Compute))
    if any(finds_positions(stage) for stage in found):
        return None  # arg-reductions carry two values per lane, which only the spatial sketch does
    rank = common_rows(found)
    return None if rank is None else Rows(task, found, rank)


def finds_positions(stage: Compute) -> bool:
    terms = subexpressions(stage.body)
    return any(isinstance(e, Reduce) and e.kind.startswith("arg") for e in terms)


@dataclass(frozen=True)
class RowTiling:
    """The holes: lanes, vectors in flight, rows per parallel step, and how many of these go
    through each stage together: this divides the rows of a step, and all rows."""

    lanes: int
    vectors: int
    rows_per_step: int
    together: int = 1
