"""The loop nests of windows over rows in place, for a whole population at once.

update   acc[i, v, :] = combine(acc, value)
finish   y[...] = epilogue(acc)

Described are the tiles that most of the image consists of; those at its edges are the same with
fewer taps and under masks.
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import Expr, as_expr, elements
from whet.ir.program import Store
from whet.ir.tensor import Tensor
from whet.schedule.families.planar.match import Planar
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import Accumulator
from whet.schedule.space.levels import (
    Level,
    LocalBuffer,
    Moves,
    ceil_div,
    clipped,
    describe,
    digits,
    start_at,
)
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import Statement
from whet.tasks.windows import Slide


def planar_nests(
    form: Planar, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The statements of all candidates."""
    px, nv, lanes = holes["px"], holes["nv"], holes["lanes"]
    every = np.arange(len(px))
    made = Accumulator(0, form.reduce, (1, 1, 1), (as_expr(0),) * 3)
    size = px * nv * lanes * made.value.dtype.itemsize
    local: dict[Tensor, LocalBuffer] = {
        made.value: LocalBuffer({"i": nv * lanes, "v": lanes, "lane": 1}, size)
    }
    window = [Level(f"k{n}", a.extent, "unroll", {a: 1}, reduces=True)
              for n, a in enumerate(form.reduce.axes)]  # fmt: skip
    (update,) = made.update(form.reduce.value, [])
    assert isinstance(update, Store)
    done: dict[Expr, Expr] = {form.stage.reduces[0]: made.result}
    finish = Store(form.stage.target, (form.stage.address,), map_expr(form.stage.body, done.get))
    around, tile = _around(form, holes), _tile(form, holes)
    return (
        describe("update", update, [*around, *window, *tile], every, local),
        describe("finish", finish, [*around, *tile], every, local),
    )


def _around(form: Planar, holes: Population) -> list[Level]:
    s, per_step = form.staged, holes["planes_per_step"]
    planes = elements(s.outer)
    return [
        Level("p", ceil_div(planes, per_step), "parallel",
              digits(clipped(per_step, planes, per_step), s.outer)),
        Level("n", per_step, "serial", digits(clipped(1, planes, per_step), s.outer)),
        _tiles("io", s.rows, holes["px"], s.image_height),
        _tiles("jo", s.columns, holes["nv"] * holes["lanes"], s.image_width),
    ]  # fmt: skip


def _tiles(name: str, slide: Slide | None, sizes: Array, extent: int) -> Level:
    """The tiles along an axis that lie inside of the image."""
    if slide is None:
        return Level(name, 1, "serial")
    first, inside = np.array([slide.middle(int(n), extent) for n in sizes]).reshape(-1, 2).T
    starts = [start_at(first + n, sizes, slide.axis.extent) for n in (0, 1)]
    return Level(name, np.maximum(1, inside), "serial", {slide.axis: starts[1] - starts[0]})


def _tile(form: Planar, holes: Population) -> list[Level]:
    s = form.staged
    down: Moves = {} if s.rows is None else {s.rows.axis: 1}
    return [
        Level("i", holes["px"], "unroll", down),
        Level("v", holes["nv"], "unroll", {s.columns.axis: holes["lanes"]}),
        Level("lane", holes["lanes"], "vector", {s.columns.axis: 1}),
    ]
