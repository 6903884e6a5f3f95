"""The loop nests of inner products, for a whole population at once."""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import Expr, Read, const
from whet.ir.program import Buffer, Store
from whet.ir.tensor import Tensor
from whet.schedule.families.dots.match import Dots
from whet.schedule.program.access import map_expr
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


def dot_nests(d: Dots, target: CpuTarget, threads: int, holes: Population) -> tuple[Statement, ...]:
    """The update and the epilogue, for a whole population at once."""
    c, mr, nc, lanes = d.c, holes["mr"], holes["nc"], holes["lanes"]
    per_block, rows = holes["tiles_per_block"], np.arange(len(mr))
    tiles, across = ceil_div(c.rows, mr), ceil_div(c.columns, nc)

    def row(number: Array | int) -> Moves:
        return digits(start_at(number, mr, c.rows), c.m_axes)

    outer = [
        Level("batch", c.batch, "parallel", digits(1, c.outer)),
        Level("block", ceil_div(tiles, per_block), "parallel",
              row(clipped(per_block, tiles, per_block))),
        Level("jo", across, "serial", {c.vector: start_at(1, nc, c.columns)}),
        Level("io", per_block, "serial", row(clipped(1, tiles, per_block))),
    ]  # fmt: skip
    *around, along = c.k_axes
    terms = [Level(f"k{n}", k.extent, "serial", {k: 1}, True) for n, k in enumerate(around)]
    terms.append(Level("ko", along.extent // lanes, "serial", {along: lanes}, True))
    tile = [
        Level("i", mr, "unroll", digits(1, c.m_axes)),
        Level("j", nc, "unroll", {c.vector: 1}),
        Level("lane", lanes, "vector", {along: 1}, True),
    ]
    acc = Buffer("acc", (1, 1, 1), c.reduce.dtype, scope="register")
    sums = Buffer("sums", (1, 1), c.reduce.dtype)
    size = c.reduce.dtype.itemsize
    local: dict[Tensor, LocalBuffer] = {
        acc: LocalBuffer({"i": nc * lanes, "j": lanes, "lane": 1}, mr * nc * lanes * size),
        sums: LocalBuffer({"i": nc, "j": 1}, mr * nc * size),
    }
    b: Expr = d.b
    if d.packed:
        store = Buffer("columns", d.packing.shape, c.b.dtype)
        b = Read(store, (*c.outer, c.vector, *c.k_axes))
    zeros = (const(0, along.dtype),) * 3
    update = Store(acc, zeros, acc[zeros] + d.a * b)
    body = map_expr(c.stage.body, lambda e: sums[zeros[:2]] if e is c.reduce else None)
    finish = Store(c.stage.target, (c.stage.address,), body)
    columns = Level("j", nc, "vector", {c.vector: 1})
    return (
        describe("update", update, [*outer, *terms, *tile], rows, local),
        describe("finish", finish, [*outer, tile[0], columns], rows, local),
    )
