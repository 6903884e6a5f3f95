"""The sliding sketch: a window over an image whose pixels are vectors, read where it lies.

    parallel p over (outer axes, rows, panels of channels):
      for tile in row:
        acc[px, nv, lanes] = identity
        for p, q of the window that lie in the image:  acc[i, v, :] += x[row + p, i + q, :] * w
        y[...] = epilogue(acc)

An image without a border in memory needs neither a copy nor conditions: rows that see the same
part of the window form a span with code of its own, and so do the tiles at either end of a row,
in which every pixel is known.  Taps beside the image are left out, so that small images take less
than the whole window would; they would add zeros, or be the least element of a maximum.

The caller's arrays seldom begin at the start of a cache line, and every load of a whole line then
takes two.  With `align`, panels begin where lines do, if pixels are whole lines apart:

    lead = align x to 16
    panel 0 at 0 (unless lead is 0), panel k at lead + (k - 1) * width, the last one moved back

With `whole`, a step runs down the image along one panel of channels, whose rows then stay in the
first cache until the window has passed over them; otherwise it is one row of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from whet.ir.affine import affine
from whet.ir.expr import Axis, Expr, Read, Reduce, elements
from whet.ir.program import LoopKind
from whet.ir.tensor import Compute, subexpressions
from whet.schedule.cost.work import lane_step
from whet.schedule.families.spatial.lower import repack_constants
from whet.schedule.families.spatial.match import Spatial
from whet.schedule.families.windowed import Windowed
from whet.schedule.program.access import address_form, map_expr
from whet.schedule.program.accumulate import loop_kinds
from whet.schedule.program.flat import stage_over_memory
from whet.schedule.program.loops import (
    identity_element,
)
from whet.tasks.task import Task
from whet.tasks.windows import (
    MOST_SLIDES,
    Window,
    only_axis,
    outside_adds_nothing,
    sliding_window,
)

LONGEST_SLIDING_CODE = 600
"""Operations on vectors up to which all terms of a window are written out: compiling takes time."""


@dataclass(frozen=True)
class RowRange:
    """Rows `first` to `end` of the result, which see the taps `low` to `high` of the window."""

    first: int
    end: int
    low: int
    high: int

    @property
    def rows(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, eq=False)
class Sliding(Windowed):
    """A stage with lanes along an axis that the window does not slide along.

    The stage is without the guard.
    """

    vector: Axis

    @property
    def reduce(self) -> Reduce:
        (reduce,) = self.stage.reduces
        return reduce

    @cached_property
    def down(self) -> Axis | None:
        """The reduced axis along which the window is high."""
        return None if self.rows is None else only_axis(self.rows.tap)

    @cached_property
    def row_ranges(self) -> tuple[RowRange, ...]:
        """The rows of the result, by the part of the window that they see."""
        if self.rows is None or self.down is None:
            return (RowRange(0, 1, 0, 1),)
        slide, end = self.rows, self.image_height
        form = affine(slide.tap)
        found: list[RowRange] = []
        for row in range(self.height):
            top, step = row * slide.step + form.constant, form.coefficient(self.down)
            taps = [k for k in range(self.down.extent) if 0 <= top + step * k < end]
            low, high = (taps[0], taps[-1] + 1) if taps else (0, 0)
            if found and (found[-1].low, found[-1].high) == (low, high):
                found[-1] = RowRange(found[-1].first, row + 1, low, high)
            else:
                found.append(RowRange(row, row + 1, low, high))
        return tuple(found)

    def ends(self, px: int) -> tuple[int, int]:
        """Tiles of px pixels at either end of a row that reach beyond the image."""
        return self.columns.ends(px, self.image_width)

    def middle(self, px: int) -> tuple[int, int]:
        """The first of the tiles that lie inside, and how many there are."""
        return self.columns.middle(px, self.image_width)

    def spatial(self) -> Spatial:
        """The same as a stage whose reads need no conditions."""
        return Spatial(self.task, self.stage, self.vector, self.columns.axis, self.outer)


@dataclass(frozen=True)
class SlidingTiling:
    """The holes: pixels and vectors per tile, lanes, panels per step, whether it is all rows, and
    whether panels begin at aligned addresses, which may take one more."""

    px: int
    nv: int
    lanes: int
    panels_per_step: int
    whole: int
    align: int = 0


def find_sliding(task: Task) -> Sliding | None:
    """The task as a window over vectors, or None if it is something else."""
    if len(task.outputs) != 1:
        return None
    (output,) = task.outputs
    window = sliding_window(output)
    if window is None or len(window.slides) > MOST_SLIDES or window.read.tensor not in task.buffers:
        return None
    changed: dict[Expr, Expr] = {window.place: window.read}
    stage = stage_over_memory(output, map_expr(output.body, changed.get), task)
    by_stride = sorted(window.slides, key=lambda s: stage.axes.index(s.axis))
    columns, rows = by_stride[-1], by_stride[0] if len(by_stride) == 2 else None
    vector = stage.vector
    image = address_form(task.buffers[window.read.tensor], window.read.indices)
    if vector is None or any(vector is s.axis for s in window.slides):
        return None
    if image.coefficient(vector) != 1 or not means_nothing_outside(window, output):
        return None
    if rows is not None and only_axis(rows.tap) is None:
        return None
    inner = {vector, *(s.axis for s in window.slides)}
    outer = tuple(a for a in stage.axes if a not in inner)
    found = Sliding(task, stage, window, rows, columns, outer, vector)
    return found if _lanes_are_neighbours(found) else None


def means_nothing_outside(window: Window, stage: Compute) -> bool:
    """True when a tap outside of the image leaves the reduction as it is."""
    if window.outside is None or outside_adds_nothing(window, stage):
        return True
    (reduce,) = [e for e in subexpressions(stage.body) if isinstance(e, Reduce)]
    neutral = identity_element(reduce.kind, reduce.value.dtype)
    plain = reduce.kind in ("max", "min") and reduce.value is window.place
    return plain and window.outside.value == neutral.value


def _lanes_are_neighbours(s: Sliding) -> bool:
    """True when every read is one vector or one element for all lanes."""
    body, _ = repack_constants(s.spatial())
    reads = [e for e in subexpressions(body) if isinstance(e, Read)]
    return all(lane_step(r, s.vector) in (0, 1) for r in reads)


def can_align(s: Sliding, lanes: int) -> bool:
    """Whether vectors of all pixels begin at aligned addresses if those of one do."""
    form = address_form(s.task.buffers[s.window.read.tensor], s.window.read.indices)
    others = [factor for atom, factor in form.terms if atom is not s.vector]
    powers = lanes > 1 and lanes & (lanes - 1) == 0
    return powers and all(n % lanes == 0 for n in (s.vector.extent, *others, form.constant))


def code_length(s: Sliding, px: int, nv: int, terms: int) -> int:
    """Operations on vectors in the text of a kernel that writes out so many terms."""
    left, right = s.ends(px)
    tiles = min(-(-s.width // px), left + right + 1)
    return len(s.row_ranges) * tiles * px * nv * terms


def window_kinds(s: Sliding, axes: Sequence[Axis], px: int, nv: int) -> tuple[LoopKind, ...]:
    """Kinds of the loops over the window: its rows as a loop if code would get long."""
    kinds = loop_kinds(axes)
    terms = elements(axes)
    if s.down is not None and code_length(s, px, nv, terms) > LONGEST_SLIDING_CODE:
        return ("serial", *kinds[1:])
    return kinds


def window_axes(s: Sliding, reduce: Reduce) -> tuple[Axis, ...]:
    """The reduced axes, rows outermost: what neighbouring pixels share lies along a row."""
    return tuple(sorted(reduce.axes, key=lambda a: a is not s.down))
