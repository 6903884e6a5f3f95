"""The planar sketch: a window that slides along contiguous rows, read where they lie.

    parallel p over the outer axes:
      for tile of rows: for panel of columns:
        acc[px, nv, lanes] = identity
        for q, p in window: acc[i, v, :] += x[row + i + p, column + q ...] * w[c, p, q]
        y[...] = epilogue(acc)

Nothing is copied (see `staged`): vectors begin anywhere in a row, and with steps of two they are
parted from pairs of vectors.  Tiles at the four edges of the image have code of their own.  Rows
above and below the image are left out of it, and of a vector that begins before a row or ends
behind it, only the lanes inside are read:

    select(0 <= lane - 1, x[row, lane - 1], 0.0)     a load under a mask

Results that no cache keeps until they are wanted may go past all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from whet.ir.expr import Expr, Read, Reduce, elements
from whet.ir.tensor import subexpressions
from whet.schedule.families.sliding.match import means_nothing_outside
from whet.schedule.families.staged.match import Staged, by_columns, find_staged
from whet.schedule.program.access import map_expr, memory_of
from whet.schedule.program.accumulate import UNROLL_LIMIT
from whet.schedule.program.flat import FlatStage, stage_over_memory
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Planar:
    """A window along contiguous rows whose taps beside the image can be left out."""

    staged: Staged
    stage: FlatStage
    """Over memory, without the guard."""

    @cached_property
    def reduce(self) -> Reduce:
        (reduce,) = self.stage.reduces
        return by_columns(self.staged, reduce)

    @cached_property
    def image(self) -> Read:
        """The one read of the image."""
        memory = memory_of(self.staged.window.read.tensor, self.staged.task)
        found = [e for e in subexpressions(self.stage.body) if isinstance(e, Read)]
        return next(e for e in found if e.tensor is memory)


@dataclass(frozen=True)
class PlanarTiling:
    """The holes: rows and vectors per tile, lanes, planes per parallel step."""

    px: int
    nv: int
    lanes: int
    planes_per_step: int
    stream: int = 0
    """1: results are written past the caches where vectors are aligned."""


def find_planar(task: Task) -> Planar | None:
    """The task as a window over rows in place, or None if it is something else."""
    s = find_staged(task)
    if s is None or not means_nothing_outside(s.window, task.outputs[0]):
        return None
    changed: dict[Expr, Expr] = {s.window.place: s.window.read}
    (output,) = task.outputs
    form = Planar(s, stage_over_memory(output, map_expr(output.body, changed.get), task))
    return form if elements(form.reduce.axes) <= UNROLL_LIMIT else None
