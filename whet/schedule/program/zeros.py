"""Stores of zeros around a value in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from whet.core.dtypes import i64
from whet.ir.expr import Expr, Var, const
from whet.ir.program import Buffer, Stmt, Store
from whet.schedule.program.loops import loop

RUN_BYTES = 64
"""Bytes that one store of zeros writes, where a run is long enough."""

Box = tuple[int, int, int]
"""Extent of an axis, and the zeros before and after it."""


def zeros_around(memory: Buffer, boxes: Sequence[Box]) -> tuple[Stmt, ...]:
    """The stores of the zeros around a value, whose axes are given slowest first.

    Of a 2 x 2 value with a border of 1, whose memory is
        0 0 0 0
        0 x x 0        the runs are the first and the last row, and for both rows between
        0 x x 0        them the first and the last element.
        0 0 0 0
    """
    sizes = [sum(box) for box in boxes]
    body: list[Stmt] = []
    for number, (extent, low, high) in enumerate(boxes):
        step = math.prod(sizes[number + 1 :])
        for start, count in ((0, low), (low + extent, high)):
            if count:
                at: Expr = const(start * step, i64)
                outer = []
                for n, (rows, before, _) in enumerate(boxes[:number]):
                    stride = math.prod(sizes[n + 1 :])
                    row = Var(f"r{n}", i64)
                    outer.append((row, rows))
                    at = at + (row + before) * stride
                body += _nest(outer, _zeros(memory, at, count * step))
    return tuple(body)


def _nest(loops: list[tuple[Var, int]], body: list[Stmt]) -> list[Stmt]:
    for var, extent in reversed(loops):
        body = [loop(var, extent, *body)]
    return body


def _zeros(memory: Buffer, at: Expr, count: int) -> list[Stmt]:
    """Stores of `count` zeros from `at` on: whole vectors, then what is left one by one."""
    zero = const(0, memory.dtype)
    lanes = max(1, RUN_BYTES // memory.dtype.itemsize)
    lane, n, rest = Var("lane", i64), Var("n", i64), Var("rest", i64)
    stores: list[Stmt] = []
    if count >= lanes:
        vector = loop(lane, lanes, Store(memory, (at + n * lanes + lane,), zero), kind="vector")
        stores.append(loop(n, count // lanes, vector))
    if count % lanes:
        left = at + (count - count % lanes) + rest
        stores.append(loop(rest, count % lanes, Store(memory, (left,), zero)))
    return stores
