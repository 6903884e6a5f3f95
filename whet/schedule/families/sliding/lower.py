"""A sliding window with given tile sizes as a loop nest (see `match` for its shape)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Reduce, Var, as_expr, binary, call, elements
from whet.ir.program import Align, Allocate, Buffer, If, Program, Stmt, Store
from whet.ir.tensor import subexpressions
from whet.schedule.families.sliding.match import (
    RowRange,
    Sliding,
    SlidingTiling,
    window_axes,
    window_kinds,
)
from whet.schedule.families.spatial.lower import repack_constants
from whet.schedule.program.access import map_expr, memory_of
from whet.schedule.program.accumulate import combine
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    split_index,
    start_of,
    within_count,
)
from whet.tasks.windows import Slide


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
        body = [loop(r, x.rows, *writer.row(x, x.first + r)) for x in s.row_ranges]
    else:
        row = p // chunks % rows
        for span in reversed(s.row_ranges):
            made = tuple(writer.row(span, row))
            body = (If(row < span.end, made, tuple(body)),) if body else made
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

    def row(self, span: RowRange, row: Expr) -> list[Stmt]:
        """All tiles of a row of the span: those at its ends one by one."""
        if self.s.rows is not None:
            self.where[self.s.rows.axis] = row
        return along_tiles(
            self.s.columns, self.t.px, self.s.image_width, Var("io"),
            lambda start, at_end: [self.tile(span, start, at_end=at_end)],
        )  # fmt: skip

    def tile(self, span: RowRange, start: Expr, *, at_end: bool) -> Stmt:
        """The tile from a pixel on, of all panels of the step."""
        s = self.s
        where = {**self.where, s.columns.axis: start + self.i}
        zero = Store(self.acc, self.at, identity_element(self.reduce.kind, self.acc.dtype))
        done: dict[Expr, Expr] = {self.reduce: self.acc[self.at]}
        final = substitute(map_expr(self.body, done.get), where)
        store = Store(s.stage.target, (substitute(s.stage.address, where),), final)
        statements: list[Stmt] = [
            self.pixels(self.vectors(zero)),
            self.update(span, where, at_end=at_end),
            self.pixels(self.vectors(store)),
        ]
        if self.wanted is not None:
            statements = [If(self.wanted, tuple(statements))]
        return loop(self.jo, self.t.panels_per_step, *statements)

    def update(self, span: RowRange, where: dict[Expr, Expr], *, at_end: bool) -> Stmt:
        s, axes = self.s, self.axes
        variables = {a: Var(f"k{n}") for n, a in enumerate(axes)}
        taps: dict[Expr, Expr] = dict(variables.items())
        if s.down is not None:
            taps[s.down] = span.low + taps[s.down]
        value = substitute(self.reduce.value, {**where, **taps})
        combined = combine(self.reduce.kind, self.acc[self.at], value)
        made = self.vectors(Store(self.acc, self.at, combined))
        if at_end and s.window.outside is not None:
            position = where[s.columns.axis] * s.columns.step + substitute(s.columns.tap, taps)
            made = If(position >= 0, (If(position < s.image_width, (made,)),))
        made = self.pixels(made)
        kinds = window_kinds(s, axes, self.t.px, self.t.nv)
        for axis, kind in zip(reversed(axes), reversed(kinds)):
            extent = span.high - span.low if axis is s.down else axis.extent
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
