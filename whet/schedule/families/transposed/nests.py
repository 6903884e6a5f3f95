"""The loop nests of transposing copies, for a whole population at once.

load     tile[i, :] = x          vectors along the source's axis
finish   y[...] = tile[i, :]     vectors along the target's axis
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import Axis, Expr, Read, as_expr, elements
from whet.ir.program import Buffer, Store
from whet.ir.tensor import Tensor
from whet.schedule.families.transposed.match import Transposed
from whet.schedule.space.levels import (
    Level,
    LocalBuffer,
    Moves,
    ceil_div,
    describe,
    digits,
    start_at,
)
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import Statement


def transposed_nests(
    t: Transposed, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The statements of all candidates."""
    size, per_step = holes["size"], holes["blocks_per_step"]
    rows = np.arange(len(size))
    blocks, across = ceil_div(t.source.extent, size), ceil_div(t.target.extent, size)
    tile = Buffer("tile", (1, 1), t.stage.target.dtype, scope="register")
    local: dict[Tensor, LocalBuffer] = {
        tile: LocalBuffer({"i": size, "lane": 1}, size * size * tile.dtype.itemsize)
    }

    def along(axis: Axis, number: Array | int) -> Moves:
        moved: dict[Expr, object] = {axis: start_at(number, size, axis.extent)}
        return moved

    outer = [
        Level("outer", elements(t.outer), "parallel", digits(1, t.outer)),
        Level("step", ceil_div(blocks, per_step), "parallel", along(t.source, per_step)),
        Level("io", per_step, "serial", along(t.source, 1)),
        Level("jo", across, "serial", along(t.target, 1)),
    ]
    at = Read(tile, (as_expr(0), as_expr(0)))
    load = Store(tile, at.indices, t.stage.body)
    finish = Store(t.stage.target, (t.stage.address,), at)
    reading = _square(size, t.target, t.source)
    writing = _square(size, t.source, t.target)
    return (
        describe("load", load, [*outer, *reading], rows, local),
        describe("finish", finish, [*outer, *writing], rows, local),
    )


def _square(size: Array, rows: Axis, lanes: Axis) -> list[Level]:
    return [
        Level("i", size, "unroll", {rows: 1}),
        Level("lane", size, "vector", {lanes: 1}),
    ]
