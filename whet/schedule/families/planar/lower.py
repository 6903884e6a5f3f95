"""A planar window with given tile sizes as a loop nest (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import substitute
from whet.ir.expr import Expr, Var, all_of, as_expr, const, elements, select
from whet.ir.program import Allocate, If, Program, Stmt, Store
from whet.schedule.families.planar.match import Planar, PlanarTiling
from whet.schedule.families.sliding.lower import along_tiles
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import Accumulator, combine
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    split_index,
    within_count,
)


def lower_planar(form: Planar, t: PlanarTiling, name: str) -> Kernel:
    """The kernel of the window with the given tile sizes."""
    s = form.staged
    total = elements(s.outer)
    p, n, io, jo = Var("p"), Var("n"), Var("io"), Var("jo")
    exact = total % t.planes_per_step == 0
    plane = within_count(p * t.planes_per_step + n, total, exact=exact)
    tiles = _Tiles(form, t, split_index(plane, s.outer))

    def row(top: Expr, at_end: bool) -> list[Stmt]:
        return along_tiles(
            s.columns, t.nv * t.lanes, s.image_width, jo,
            lambda left, beside: tiles.tile(top, left, above=at_end, beside=beside),
        )  # fmt: skip

    if s.rows is None:
        body = row(as_expr(0), False)
    else:
        body = along_tiles(s.rows, t.px, s.image_height, io, row)
    steps = -(-total // t.planes_per_step)
    inner = Allocate(tiles.make.value, (loop(n, t.planes_per_step, *body),))
    whole = (loop(p, steps, inner, kind="parallel"),)
    inputs, arguments = arguments_of(s.task, whole, {})
    return Kernel(Program(name, inputs, (form.stage.target,), whole), arguments, s.task.outputs)


class _Tiles:
    """Writes the tiles of a plane."""

    def __init__(self, form: Planar, t: PlanarTiling, where: dict[Expr, Expr]) -> None:
        self.form, self.t, self.where = form, t, where
        self.i, self.v, self.lane = Var("i"), Var("v"), Var("lane")
        at = (self.i, self.v, self.lane)
        self.make = Accumulator(0, form.reduce, (t.px, t.nv, t.lanes), at)

    def tile(self, top: Expr, left: Expr, *, above: bool, beside: bool) -> list[Stmt]:
        """The results from a row and a column on; whether windows reach above or below the
        image, and beside it."""
        s, t, make = self.form.staged, self.t, self.make
        where = {**self.where, s.columns.axis: left + self.v * t.lanes + self.lane}
        if s.rows is not None:
            where[s.rows.axis] = top + self.i
        zero = Store(make.value, make.at, identity_element(make.reduce.kind, make.value.dtype))
        done: dict[Expr, Expr] = {self.form.stage.reduces[0]: make.result}
        final = substitute(map_expr(self.form.stage.body, done.get), where)
        address = substitute(self.form.stage.address, where)
        store: Stmt = Store(self.form.stage.target, (address,), final, bool(t.stream))
        if s.width < t.lanes:
            store = If(self.lane < s.width, (store,))
        update = self.update(where, above=above, beside=beside)
        return [self.rows(self.vectors(zero)), update, self.rows(self.vectors(store))]

    def update(self, where: dict[Expr, Expr], *, above: bool, beside: bool) -> Stmt:
        s, make = self.form.staged, self.make
        taps = {a: Var(f"k{n}") for n, a in enumerate(make.reduce.axes)}
        here: dict[Expr, Expr] = {**where}
        here.update(taps.items())
        value = make.reduce.value
        within = self.within(beside)
        if within:
            outside = s.window.outside
            other = const(0, self.form.image.dtype) if outside is None else outside
            masked: dict[Expr, Expr] = {
                self.form.image: select(all_of(within), self.form.image, other)
            }
            value = map_expr(value, masked.get)
        value = substitute(value, here)
        combined = combine(make.reduce.kind, make.value[make.at], value)
        made = self.vectors(Store(make.value, make.at, combined))
        if above and s.rows is not None and s.window.outside is not None:
            row = substitute(s.rows.axis * s.rows.step + s.rows.tap, here)
            made = If(row >= 0, (If(row < s.image_height, (made,)),))
        made = self.rows(made)
        for axis in reversed(make.reduce.axes):
            made = loop(taps[axis], axis.extent, made, kind="unroll")
        return made

    def within(self, beside: bool) -> list[Expr]:
        """When a lane reads the image: not beside it, and not for results that there are not."""
        s = self.form.staged
        conditions: list[Expr] = []
        if beside and s.window.outside is not None:
            column = s.columns.axis * s.columns.step + s.columns.tap
            conditions += [column >= 0, column < s.image_width]
        if s.width < self.t.lanes:
            conditions.append(self.lane < s.width)
        return conditions

    def vectors(self, body: Stmt) -> Stmt:
        lanes = loop(self.lane, self.t.lanes, body, kind="vector")
        return loop(self.v, self.t.nv, lanes, kind="unroll")

    def rows(self, body: Stmt) -> Stmt:
        return loop(self.i, self.t.px, body, kind="unroll")
