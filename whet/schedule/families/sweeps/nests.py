"""The loop nests of rows that are reduced, for a whole population at once."""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import as_expr, elements
from whet.ir.program import Buffer, Store
from whet.ir.tensor import Tensor
from whet.schedule.families.sweeps.match import Sweeps
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import combine
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


def sweep_nests(
    s: Sweeps, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The loops of the update, where blocks are whole, and of the epilogue."""
    nv, lanes, block = holes["nv"], holes["lanes"], holes["block"]
    per_chunk, width = holes["panels_per_chunk"], nv * lanes
    panels = ceil_div(s.vector.extent, width)
    rows = np.arange(len(nv))

    def column(number: Array | int) -> Moves:
        return {s.vector: start_at(number, width, s.vector.extent)}

    outer = [
        Level("outer", elements(s.outer), "parallel", digits(1, s.outer)),
        Level("chunk", ceil_div(panels, per_chunk), "parallel",
              column(clipped(per_chunk, panels, per_chunk))),
    ]  # fmt: skip
    *around, last = s.terms
    terms = [Level(f"k{n}", k.extent, "serial", {k: 1}, True) for n, k in enumerate(around)]
    terms.append(Level("number", last.extent // block, "serial", {last: block}, True))
    along = Level("jo", per_chunk, "serial", column(clipped(1, panels, per_chunk)))
    inside = Level("step", block, "unroll", {last: 1}, True)
    tile = [Level("v", nv, "unroll", {s.vector: lanes}), Level("lane", lanes, "vector",
                                                              {s.vector: 1})]  # fmt: skip
    acc = Buffer("acc", (1, 1), s.reduce.dtype, scope="register")
    row = Buffer("row", (1, 1, 1), s.reduce.dtype)
    size = width * s.reduce.dtype.itemsize
    local: dict[Tensor, LocalBuffer] = {
        acc: LocalBuffer({"v": lanes, "lane": 1}, size),
        row: LocalBuffer({"jo": width, "v": lanes, "lane": 1}, size * per_chunk),
    }
    zero = as_expr(0)
    total = acc[zero, zero]
    update = Store(acc, (zero, zero), combine(s.reduce.kind, total, s.value))
    body = map_expr(s.stage.body, lambda e: row[zero, zero, zero] if e is s.reduce else None)
    finish = Store(s.stage.target, (s.stage.address,), body)
    return (
        describe("update", update, [*outer, *terms, along, inside, *tile], rows, local),
        describe("finish", finish, [*outer, along, *tile], rows, local),
    )
