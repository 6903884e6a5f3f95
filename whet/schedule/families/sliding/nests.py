"""The loop nests of windows over vectors, for a whole population at once.

update   acc[i, v, :] = combine(acc, value)
finish   y[...] = epilogue(acc)

Described are the rows and tiles that most of the image consists of; those at its edges are the
same with fewer taps.
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import Expr, Reduce, as_expr, elements
from whet.ir.program import Store
from whet.ir.tensor import Tensor, subexpressions
from whet.schedule.families.sliding.match import RowRange, Sliding, window_axes, window_kinds
from whet.schedule.families.spatial.lower import repack_constants
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
from whet.schedule.space.statements import MARKS, Statement


def sliding_nests(
    s: Sliding, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The statements of all candidates."""
    every = np.arange(len(holes["px"]))
    px, nv, lanes = holes["px"], holes["nv"], holes["lanes"]
    body, _ = repack_constants(s.spatial())
    (reduce,) = [e for e in subexpressions(body) if isinstance(e, Reduce)]
    made = Accumulator(0, reduce, (1, 1, 1), (as_expr(0),) * 3)
    size = px * nv * lanes * made.value.dtype.itemsize
    local: dict[Tensor, LocalBuffer] = {
        made.value: LocalBuffer({"i": nv * lanes, "v": lanes, "lane": 1}, size)
    }
    span = max(s.row_ranges, key=lambda x: x.rows)
    axes = window_axes(s, reduce)
    sizes = zip(px.tolist(), nv.tolist())
    marks = np.array([[MARKS[kind] for kind in window_kinds(s, axes, *size)] for size in sizes])
    window = [
        Level(f"k{n}", span.high - span.low if a is s.down else a.extent, "unroll", {a: 1},
              reduces=True, marks=marks[:, n])
        for n, a in enumerate(axes)
    ]  # fmt: skip
    (update,) = made.update(reduce.value, [])
    assert isinstance(update, Store)
    done: dict[Expr, Expr] = {reduce: made.result}
    finish = Store(s.stage.target, (s.stage.address,), map_expr(body, done.get))
    around, tile = _around(s, holes, span), _tile(s, holes)
    return (
        describe("update", update, [*around, *window, *tile], every, local),
        describe("finish", finish, [*around, *tile], every, local),
    )


def _around(s: Sliding, holes: Population, span: RowRange) -> list[Level]:
    width, per_step, whole = (holes["nv"] * holes["lanes"], holes["panels_per_step"],
                              holes["whole"] == 1)  # fmt: skip
    align = holes["align"]
    panels = ceil_div(s.vector.extent, width) + align
    inside = np.array([max(1, s.middle(int(px))[1]) for px in holes["px"]])
    first = np.array([s.middle(int(px))[0] for px in holes["px"]])

    def panel(number: Array) -> Moves:
        # Where nothing is misaligned, panel 1 begins where panel 0 would.
        return {s.vector: start_at(np.maximum(number - align, 0), width, s.vector.extent)}

    down: Moves = {} if s.rows is None else {s.rows.axis: 1}
    ahead = [start_at(first + n, holes["px"], s.width) for n in (0, 1)]
    return [
        Level("outer", elements(s.outer), "parallel", digits(1, s.outer)),
        Level("row", np.where(whole, 1, s.height), "parallel", down),
        Level("chunk", ceil_div(panels, per_step), "parallel",
              panel(clipped(per_step, panels, per_step))),
        Level("r", np.where(whole, span.rows, 1), "serial", down),
        Level("io", inside, "serial", {s.columns.axis: ahead[1] - ahead[0]}),
        Level("jo", per_step, "serial", panel(clipped(1, panels, per_step))),
    ]  # fmt: skip


def _tile(s: Sliding, holes: Population) -> list[Level]:
    return [
        Level("i", holes["px"], "unroll", {s.columns.axis: 1}),
        Level("v", holes["nv"], "unroll", {s.vector: holes["lanes"]}),
        Level("lane", holes["lanes"], "vector", {s.vector: 1}),
    ]
