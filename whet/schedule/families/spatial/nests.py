"""The loop nests of spatial stages, for a whole population at once.

update   acc[i, v, :] = combine(acc, value)         one per reduction
finish   y[...] = epilogue(acc)
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import Expr, Reduce, as_expr, elements
from whet.ir.program import Store
from whet.ir.tensor import Tensor, subexpressions
from whet.schedule.families.spatial.lower import repack_constants
from whet.schedule.families.spatial.match import Spatial
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import Accumulator, loop_kinds
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


def spatial_nests(
    s: Spatial, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The statements of all candidates."""
    rows = np.arange(len(holes["px"]))
    px, nv, lanes = holes["px"], holes["nv"], holes["lanes"]
    outer, tile = _outer(s, holes), _tile(s, holes)
    body, _ = repack_constants(s)
    local: dict[Tensor, LocalBuffer] = {}
    results: dict[Expr, Expr] = {}
    found: list[Statement] = []
    for n, reduce in enumerate(e for e in subexpressions(body) if isinstance(e, Reduce)):
        made = Accumulator(n, reduce, (1, 1, 1), (as_expr(0),) * 3)
        for register in made.registers:
            size = px * nv * lanes * register.dtype.itemsize
            local[register] = LocalBuffer({"i": nv * lanes, "v": lanes, "lane": 1}, size)
        results[reduce] = made.result
        kinds = loop_kinds(reduce.axes)
        axes = [Level(f"k{m}", a.extent, kind, {a: 1}, reduces=True)
                for m, (a, kind) in enumerate(zip(reduce.axes, kinds))]  # fmt: skip
        for update in made.update(reduce.value, []):
            assert isinstance(update, Store)
            found.append(describe("update", update, [*outer, *axes, *tile], rows, local))
    finish = Store(s.stage.target, (s.stage.address,), map_expr(body, results.get))
    return (*found, describe("finish", finish, [*outer, *tile], rows, local))


def _outer(s: Spatial, holes: Population) -> list[Level]:
    px, width = holes["px"], holes["nv"] * holes["lanes"]
    per_step, per_chunk = holes["tiles_per_step"], holes["panels_per_step"]
    rows = 1 if s.pixels is None else s.pixels.extent
    tiles, panels = ceil_div(rows, px), ceil_div(s.columns, width) + holes.get("stream", 0)

    def row(number: Array) -> Moves:
        return {} if s.pixels is None else {s.pixels: start_at(number, px, rows)}

    def column(number: Array) -> Moves:
        return {} if s.vector is None else {s.vector: start_at(number, width, s.columns)}

    return [
        Level("outer", elements(s.outer), "parallel", digits(1, s.outer)),
        Level("step", ceil_div(tiles, per_step), "parallel",
              row(clipped(per_step, tiles, per_step))),
        Level("chunk", ceil_div(panels, per_chunk), "parallel",
              column(clipped(per_chunk, panels, per_chunk))),
        Level("io", per_step, "serial", row(clipped(1, tiles, per_step))),
        Level("jo", per_chunk, "serial", column(clipped(1, panels, per_chunk))),
    ]  # fmt: skip


def _tile(s: Spatial, holes: Population) -> list[Level]:
    lanes = holes["lanes"]
    along: Moves = {} if s.vector is None else {s.vector: lanes}
    return [
        Level("i", holes["px"], "unroll", {} if s.pixels is None else {s.pixels: 1}),
        Level("v", holes["nv"], "unroll", along),
        Level("lane", lanes, "vector", {} if s.vector is None else {s.vector: 1}),
    ]
