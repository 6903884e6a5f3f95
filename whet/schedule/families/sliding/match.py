"""The sliding sketch: a window over an image whose pixels are vectors, read where it lies.

    parallel p over (outer axes, rows, panels of channels):
      for tile in row:
        acc[px, nv, lanes] = identity
        for p, q of the window that lie in the image:  acc[i, v, :] += x[row + p, i + q, :] * w
        y[...] = epilogue(acc)

An image without a border in memory needs neither a copy nor conditions: rows that see the same
part of the window form a segment with code of its own, and so do the tiles at either end of a row,
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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from whet.ir.affine import affine, substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, as_expr, binary, call, elements
from whet.ir.program import Align, Allocate, Buffer, If, LoopKind, Program, Stmt, Store
from whet.ir.tensor import Compute, subexpressions
from whet.schedule.cost.work import lane_step
from whet.schedule.families.spatial.match import Spatial, combine, loop_kinds, repack_constants
from whet.schedule.families.windowed import Windowed
from whet.schedule.program.access import address_form, map_expr, memory_of
from whet.schedule.program.flat import stage_over_memory
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    split_index,
    start_of,
    within_count,
)
from whet.tasks.task import Task
from whet.tasks.windows import (
    MOST_SLIDES,
    Slide,
    Window,
    only_axis,
    outside_adds_nothing,
    sliding_window,
)

LONGEST_CODE = 600
"""Operations on vectors up to which all terms of a window are written out: compiling takes time."""


@dataclass(frozen=True)
class Segment:
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
    def segments(self) -> tuple[Segment, ...]:
        """The rows of the result, by the part of the window that they see."""
        if self.rows is None or self.down is None:
            return (Segment(0, 1, 0, 1),)
        slide, end = self.rows, self.image_height
        form = affine(slide.tap)
        found: list[Segment] = []
        for row in range(self.height):
            top, step = row * slide.step + form.constant, form.coefficient(self.down)
            taps = [k for k in range(self.down.extent) if 0 <= top + step * k < end]
            low, high = (taps[0], taps[-1] + 1) if taps else (0, 0)
            if found and (found[-1].low, found[-1].high) == (low, high):
                found[-1] = Segment(found[-1].first, row + 1, low, high)
            else:
                found.append(Segment(row, row + 1, low, high))
        return tuple(found)

    def ends(self, px: int) -> tuple[int, int]:
        """How many tiles of px pixels at either end of a row reach beyond the image."""
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


def lower_sliding(s: Sliding, t: SlidingTiling, name: str) -> Kernel:
    """The kernel of the window with the given tile sizes."""
    width = t.nv * t.lanes
    panels = -(-s.vector.extent // width) + t.align
    chunks, rows = -(-panels // t.panels_per_step), 1 if t.whole else s.height
    p, jo, lead = Var("p"), Var("jo"), Var("lead")
    exact = panels % t.panels_per_step == 0
    panel = within_count(p % chunks * t.panels_per_step + jo, panels, exact=exact)
    start = start_of(panel, width, s.vector.extent)
    if t.align:
        first = call("max", lead + (panel - 1) * width, 0)
        start = call("min", first, s.vector.extent - width)
    wanted = binary("or", panel > 0, lead > 0) if t.align else None
    writer = _Tiles(s, t, jo, wanted)
    writer.where.update(split_index(p // (chunks * rows), s.outer))
    writer.where[s.vector] = start + writer.lane_offset
    body: Sequence[Stmt] = ()
    if t.whole:
        r = Var("r")
        body = [loop(r, x.rows, *writer.row(x, x.first + r)) for x in s.segments]
    else:
        row = p // chunks % rows
        for segment in reversed(s.segments):
            made = tuple(writer.row(segment, row))
            body = (If(row < segment.end, made, tuple(body)),) if body else made
    total = elements(s.outer) * rows * chunks
    nest: Stmt = Allocate(writer.acc, tuple(body))
    if wanted is not None:
        if t.panels_per_step == 1:
            nest = If(substitute(wanted, {jo: as_expr(0)}), (nest,))
        image = memory_of(s.window.read.tensor, s.task)
        nest = Align(lead, image, t.lanes, (nest,))
    whole = (loop(p, total, nest, kind="parallel"),)
    inputs, arguments = arguments_of(s.task, whole, writer.known)
    return Kernel(Program(name, inputs, (s.stage.target,), whole), arguments, s.task.outputs)


class _Tiles:
    """Writes the tiles of a row."""

    def __init__(self, s: Sliding, t: SlidingTiling, jo: Var, wanted: Expr | None) -> None:
        self.s, self.t, self.jo = s, t, jo
        self.wanted = wanted if t.panels_per_step > 1 else None
        """Whether a panel among several is one; of a single one that is known before."""
        self.i, self.v, self.lane = Var("i"), Var("v"), Var("lane")
        self.lane_offset = self.v * t.lanes + self.lane
        self.body, self.known = repack_constants(s.spatial())
        (self.reduce,) = [e for e in subexpressions(self.body) if isinstance(e, Reduce)]
        shape = (t.px, t.nv, t.lanes)
        self.acc = Buffer("acc0", shape, self.reduce.value.dtype, scope="register")
        self.at = (self.i, self.v, self.lane)
        self.where: dict[Expr, Expr] = {}

    def row(self, segment: Segment, row: Expr) -> list[Stmt]:
        """All tiles of a row of the segment: those at its ends one by one."""
        if self.s.rows is not None:
            self.where[self.s.rows.axis] = row
        return along_tiles(
            self.s.columns, self.t.px, self.s.image_width, Var("io"),
            lambda start, at_end: [self.tile(segment, start, at_end=at_end)],
        )  # fmt: skip

    def tile(self, segment: Segment, start: Expr, *, at_end: bool) -> Stmt:
        """The tile from a pixel on, of all panels of the step."""
        s = self.s
        where = {**self.where, s.columns.axis: start + self.i}
        zero = Store(self.acc, self.at, identity_element(self.reduce.kind, self.acc.dtype))
        done: dict[Expr, Expr] = {self.reduce: self.acc[self.at]}
        final = substitute(map_expr(self.body, done.get), where)
        store = Store(s.stage.target, (substitute(s.stage.address, where),), final)
        statements: list[Stmt] = [
            self.pixels(self.vectors(zero)),
            self.update(segment, where, at_end=at_end),
            self.pixels(self.vectors(store)),
        ]
        if self.wanted is not None:
            statements = [If(self.wanted, tuple(statements))]
        return loop(self.jo, self.t.panels_per_step, *statements)

    def update(self, segment: Segment, where: dict[Expr, Expr], *, at_end: bool) -> Stmt:
        s, axes = self.s, self.axes
        variables = {a: Var(f"k{n}") for n, a in enumerate(axes)}
        taps: dict[Expr, Expr] = dict(variables.items())
        if s.down is not None:
            taps[s.down] = segment.low + taps[s.down]
        value = substitute(self.reduce.value, {**where, **taps})
        combined = combine(self.reduce.kind, self.acc[self.at], value)
        made = self.vectors(Store(self.acc, self.at, combined))
        if at_end and s.window.outside is not None:
            position = where[s.columns.axis] * s.columns.step + substitute(s.columns.tap, taps)
            made = If(position >= 0, (If(position < s.image_width, (made,)),))
        made = self.pixels(made)
        kinds = window_kinds(s, axes, self.t.px, self.t.nv)
        for axis, kind in zip(reversed(axes), reversed(kinds)):
            extent = segment.high - segment.low if axis is s.down else axis.extent
            made = loop(variables[axis], extent, made, kind=kind)
        return made

    @property
    def axes(self) -> tuple[Axis, ...]:
        return window_axes(self.s, self.reduce)

    def vectors(self, body: Stmt) -> Stmt:
        lanes = loop(self.lane, self.t.lanes, body, kind="vector")
        return loop(self.v, self.t.nv, lanes, kind="unroll")

    def pixels(self, body: Stmt) -> Stmt:
        return loop(self.i, self.t.px, body, kind="unroll")


def along_tiles(
    slide: Slide, size: int, extent: int, io: Var, tile: Callable[[Expr, bool], list[Stmt]]
) -> list[Stmt]:
    """All tiles along an axis: those that reach beyond the image one by one, a loop between."""
    starts = slide.starts(size)
    first, inside = slide.middle(size, extent)
    made = [stmt for x in starts[:first] for stmt in tile(as_expr(x), True)]
    if inside:
        start = start_of(first + io, size, slide.axis.extent)
        made.append(loop(io, inside, *tile(start, False)))
    return [*made, *(stmt for x in starts[first + inside :] for stmt in tile(as_expr(x), True))]


def code_length(s: Sliding, px: int, nv: int, terms: int) -> int:
    """Operations on vectors in the text of a kernel that writes out so many terms."""
    left, right = s.ends(px)
    tiles = min(-(-s.width // px), left + right + 1)
    return len(s.segments) * tiles * px * nv * terms


def window_kinds(s: Sliding, axes: Sequence[Axis], px: int, nv: int) -> tuple[LoopKind, ...]:
    """How the loops over the window are written: its rows as a loop if code would get long."""
    kinds = loop_kinds(axes)
    terms = elements(axes)
    if s.down is not None and code_length(s, px, nv, terms) > LONGEST_CODE:
        return ("serial", *kinds[1:])
    return kinds


def window_axes(s: Sliding, reduce: Reduce) -> tuple[Axis, ...]:
    """The reduced axes, rows outermost: what neighbouring pixels share lies along a row."""
    return tuple(sorted(reduce.axes, key=lambda a: a is not s.down))
