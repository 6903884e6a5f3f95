"""The staged sketch: a window that slides along contiguous rows, over a copy with a border.

    parallel p over (outer axes, blocks of rows):
      copy[rows, pitch] = the rows of the image that the block needs, zeros around them
      for tile of rows in block: for panel of columns:
        acc[px, nv, lanes] = identity
        for q, p in window: acc[i, v, :] += copy[i + p, v * lanes + q ...] * w[c, p, q]
        y[...] = epilogue(acc)

The copy is small enough for the first cache, so that an image without a border in memory needs
no pass of its own to get one, and reads of it need neither conditions nor care at the edges.
With steps of two, even and odd columns are copied apart, and vectors of neighbouring results
then read neighbouring elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from whet.ir.affine import free_symbols
from whet.ir.expr import Expr, Reduce
from whet.ir.tensor import subexpressions
from whet.schedule.families.windowed import Windowed
from whet.schedule.program.access import map_expr
from whet.schedule.program.flat import stage_over_memory
from whet.tasks.task import Task
from whet.tasks.windows import sliding_window


@dataclass(frozen=True, eq=False)
class Staged(Windowed):
    """A stage whose window slides along the contiguous axis of image and result."""

    @cached_property
    def border(self) -> int:
        """The largest number of columns of a phase that are read beside the image."""
        return self.columns.beside(self.image_width)

    @cached_property
    def unguarded(self) -> tuple[Expr, Reduce]:
        """The body of the stage without the guard, and its reduction."""
        changed: dict[Expr, Expr] = {self.window.place: self.window.read}
        body = map_expr(self.task.outputs[0].body, changed.get)
        (reduce,) = [e for e in subexpressions(body) if isinstance(e, Reduce)]
        return body, reduce

    @cached_property
    def rows_reduced(self) -> frozenset[Expr]:
        """The reduced axes along which the window is high."""
        return frozenset() if self.rows is None else free_symbols(self.rows.tap)


@dataclass(frozen=True)
class StagedTiling:
    """The holes: rows and vectors per tile, lanes, rows per block, blocks per parallel step.

    With `ahead` 1, a block is copied before the one in front of it is computed: loads would
    otherwise have to wait until what has just been stored has reached the cache.  With `ahead` 2,
    a block is copied tile by tile, each before the one in front of it is computed, so that copying
    and computing overlap and no row is copied twice.
    """

    px: int
    nv: int
    lanes: int
    rows: int
    blocks_per_step: int
    ahead: int = 0


@dataclass(frozen=True)
class Copy:
    """The layout of a block's copy.

    Phase f holds the columns f, f + step, ...  A row is followed by zeros up to the pitch, which
    also serve as the border before the next row.
    """

    phases: int
    rows: int
    pitch: int
    before: int
    lanes: int

    @property
    def plane(self) -> int:
        return self.before + self.rows * self.pitch

    @property
    def size(self) -> int:
        """A vector may begin in the last column."""
        return self.phases * self.plane + 2 * self.lanes


def find_staged(task: Task) -> Staged | None:
    """The task as a sliding window over contiguous rows, or None if it is something else."""
    if len(task.outputs) != 1:
        return None
    (output,) = task.outputs
    window = sliding_window(output)
    image = task.buffers.get(window.read.tensor) if window is not None else None
    if window is None or image is None:
        return None
    stage = stage_over_memory(output, output.body, task)
    columns = window.along(stage.vector)
    if columns is None or image.element_strides[columns.dim] != 1:
        return None
    rows = next((s for s in window.slides if s is not columns), None)
    inner = {s.axis for s in window.slides}
    outer = tuple(a for a in stage.axes if a not in inner)
    return Staged(task, stage, window, rows, columns, outer)


def copy_of(s: Staged, lanes: int, rows: int) -> Copy:
    """The copy that a block of so many rows needs."""
    step = s.columns.step
    height = 1 if s.rows is None else (rows - 1) * s.rows.step + s.rows.high - s.rows.low + 1
    wide = -(-s.image_width // step) + s.border
    return Copy(step, height, -(-wide // lanes) * lanes, -(-s.border // lanes) * lanes, lanes)


def width_of_phase(s: Staged, phase: int) -> int:
    """Columns of the image that belong to a phase."""
    return len(range(phase, s.image_width, s.columns.step))


def by_columns(s: Staged, reduce: Reduce) -> Reduce:
    """The reduction with its rows innermost: what neighbouring rows share is then used at once."""
    axes = tuple(sorted(reduce.axes, key=lambda a: a in s.rows_reduced))
    return Reduce(reduce.kind, axes, reduce.value)
