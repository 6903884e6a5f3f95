"""Zero borders: what they look like in memory, and the code that writes them.

A value that windows slide over is stored with zeros around it.  Memory that it has to itself is
zeroed once; memory that it shares with other values needs its border anew in every call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whet.core.dtypes import DType, i64
from whet.core.types import Shape
from whet.ir.expr import Expr, Var, const
from whet.ir.program import Buffer, Program, Stmt, Store
from whet.schedule.nest import loop
from whet.tasks.layout import storage_order
from whet.tasks.task import Border

RUN_BYTES = 64
"""Bytes that one store of zeros writes, where a run is long enough."""


@dataclass(frozen=True)
class Geometry:
    """A value with its border in memory; equal ones can take turns without new zeros."""

    shape: Shape
    inner: int | None
    border: Border
    dtype: DType

    @property
    def boxes(self) -> tuple[tuple[int, int, int], ...]:
        """Extent and border of every axis, slowest first."""
        order = storage_order(len(self.shape), self.inner)
        return tuple((self.shape[a], *self.border[a]) for a in order)

    @property
    def zero_bytes(self) -> int:
        """Bytes of the border alone."""
        whole = math.prod(extent + low + high for extent, low, high in self.boxes)
        return (whole - math.prod(self.shape)) * self.dtype.itemsize


def clearing_program(g: Geometry) -> Program:
    """The program that writes the zeros around a value and leaves the value alone.

    Of a 2 x 2 value with a border of 1, whose memory is
        0 0 0 0
        0 x x 0        the runs are the first and the last row, and for both rows between
        0 x x 0        them the first and the last element.
        0 0 0 0
    """
    sizes = [extent + low + high for extent, low, high in g.boxes]
    memory = Buffer("memory", (math.prod(sizes),), g.dtype)
    body: list[Stmt] = []
    for number, (extent, low, high) in enumerate(g.boxes):
        step = math.prod(sizes[number + 1 :])
        for start, count in ((0, low), (low + extent, high)):
            if count:
                at: Expr = const(start * step, i64)
                outer = []
                for n, (rows, before, _) in enumerate(g.boxes[:number]):
                    stride = math.prod(sizes[n + 1 :])
                    row = Var(f"r{n}", i64)
                    outer.append((row, rows))
                    at = at + (row + before) * stride
                body += _nest(outer, _zeros(memory, at, count * step))
    return Program("clear", (), (memory,), tuple(body))


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
