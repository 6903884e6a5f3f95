"""The loop nests of contractions, for a whole population at once.

    copy     panels[...] = b                  where b is copied at run time
    update   acc[i, v, :] += a * b
    finish   y[...] = epilogue(acc)

The parallel loop is described as the three that it stands for (batch, blocks, chunks).
"""

from __future__ import annotations

import numpy as np

from whet.core.target import Target
from whet.core.types import Array
from whet.ir.affine import substitute
from whet.ir.expr import Expr, Read, as_expr
from whet.ir.program import Buffer, Store
from whet.ir.tensor import Tensor
from whet.schedule.access import map_expr
from whet.schedule.contraction import Contraction
from whet.schedule.nest_arrays import (
    Level,
    Local,
    Moves,
    ceil_div,
    clipped,
    describe,
    digits,
    start_at,
)
from whet.schedule.nests import Statement
from whet.schedule.sketch import Population


def contraction_nests(
    c: Contraction, target: Target, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The statements of all candidates."""
    count = len(holes["mr"])
    packs = np.asarray(holes.get("pack", np.zeros(count, np.int64)))
    wide = holes["nv"] * holes["lanes"] > c.columns
    copies = np.asarray(holes.get("pack_b", np.zeros(count, np.int64))) != 0
    panelled = np.full(count, c.b_is_constant or not c.b_is_contiguous) | copies | wide
    found: list[Statement] = []
    for pack in np.unique(packs):
        for packed in np.unique(panelled):
            rows = np.flatnonzero((packs == pack) & (panelled == packed))
            if len(rows):
                part = {name: column[rows] for name, column in holes.items()}
                nest = _Nest(c, part, rows, packed=bool(packed), copied=bool(pack))
                found += nest.statements()
    return tuple(found)


class _Nest:
    """Candidates that have the same structure."""

    def __init__(
        self, c: Contraction, holes: Population, rows: Array, *, packed: bool, copied: bool
    ) -> None:
        self.c, self.rows, self.packed, self.copied = c, rows, packed, copied
        self.mr, self.nv, self.lanes = holes["mr"], holes["nv"], holes["lanes"]
        self.tpb, self.ppc = holes["tiles_per_block"], holes["panels_per_chunk"]
        self.unroll = holes.get("unroll", np.ones(len(rows), np.int64))
        self.width = self.nv * self.lanes
        self.tiles, self.panels = ceil_div(c.rows, self.mr), ceil_div(c.columns, self.width)
        self.acc = Buffer("acc", (1, 1, 1), c.a.dtype, scope="register")
        self.store = Buffer("panels", (1,), c.b.dtype)

    def statements(self) -> list[Statement]:
        c = self.c
        local: dict[Tensor, Local] = {self.acc: self._registers(), self.store: self._panels()}
        at = Read(self.acc, (as_expr(0),) * 3)
        b = Read(self.store, (c.vector,)) if self.packed else substitute(c.b, c.k_values)
        update = Store(self.acc, at.indices, at + c.a * b)
        body = map_expr(c.stage.body, lambda e: at if e is c.reduce else None)
        finish = Store(c.stage.target, (c.stage.address,), body)
        outer, inner = self._outer(), self._tile()
        found = [
            describe("update", update, [*outer, *self._reduced(), *inner], self.rows, local),
            describe("finish", finish, [*outer, *inner], self.rows, local),
        ]
        if self.copied:
            found.insert(0, self._row_copy(outer, local))
        if self.packed and not c.b_is_constant:
            found.insert(0, self._copy(local))
        return found

    # ---------------------------------------------------------------------------------- levels
    def _column(self, panel: Array | int) -> Moves:
        if self.packed and bool((self.width > self.c.columns).all()):
            return {}
        return {self.c.vector: start_at(panel, self.width, self.c.columns)}

    def _row(self, number: Array | int) -> Moves:
        return digits(start_at(number, self.mr, self.c.rows), self.c.m_axes)

    def _outer(self) -> list[Level]:
        c = self.c
        blocks, chunks = ceil_div(self.tiles, self.tpb), ceil_div(self.panels, self.ppc)
        panel = clipped(self.ppc, self.panels, self.ppc)
        number = clipped(self.tpb, self.tiles, self.tpb)
        jj = Level("jj", self.ppc, "serial", self._column(clipped(1, self.panels, self.ppc)))
        io = Level("io", self.tpb, "serial", self._row(clipped(1, self.tiles, self.tpb)))
        return [
            Level("batch", c.batch, "parallel", digits(1, c.outer)),
            Level("block", blocks, "parallel", self._row(number)),
            Level("chunk", chunks, "parallel", self._column(panel)),
            *((io, jj) if self.copied else (jj, io)),
        ]

    def _reduced(self) -> list[Level]:
        c = self.c
        found = [Level(f"k{n}", k.extent, "serial", {k: 1}, reduces=True)
                 for n, k in enumerate(c.k_axes)]  # fmt: skip
        last = c.k_axes[-1]
        times = np.where(last.extent % self.unroll == 0, self.unroll, 1)
        if (times > 1).any():
            name = found.pop().name
            found += [
                Level(name, last.extent // times, "serial", {last: times}, reduces=True),
                Level(f"{name}u", times, "unroll", {last: 1}, reduces=True),
            ]
        return found

    def _tile(self) -> list[Level]:
        c = self.c
        return [
            Level("i", self.mr, "unroll", digits(1, c.m_axes)),
            Level("v", self.nv, "unroll", {c.vector: np.minimum(self.lanes, c.columns - 1)}),
            Level("lane", self.lanes, "vector", {c.vector: 1}),
        ]

    # --------------------------------------------------------------------------------- buffers
    def _registers(self) -> Local:
        size = self.mr * self.width * self.acc.dtype.itemsize
        return Local({"i": self.width, "v": self.lanes, "lane": 1}, size)

    def _panels(self) -> Local:
        """[outer..., panel, k..., column within the panel]"""
        c = self.c
        strides: dict[str, Array | int] = {"lane": 1, "v": self.lanes}
        step: Array = self.width
        last = c.k_axes[-1]
        times = np.where(last.extent % self.unroll == 0, self.unroll, 1)
        strides[f"k{len(c.k_axes) - 1}u"] = step
        for n, k in reversed(list(enumerate(c.k_axes))):
            strides[f"k{n}"] = step * (times if k is last else 1)
            step = step * k.extent
        strides["jj"] = step * clipped(1, self.panels, self.ppc)
        strides["chunk"] = step * clipped(self.ppc, self.panels, self.ppc)
        strides["batch"] = step * self.panels
        strides["panel"] = step
        return Local(strides, step * self.panels * c.batch * c.b.dtype.itemsize)

    # ---------------------------------------------------------------------------------- copies
    def _copy(self, local: dict[Tensor, Local]) -> Statement:
        """b into panels, one per parallel step."""
        c = self.c
        value = substitute(c.b, c.k_values)
        store = Store(self.store, (c.vector,), value)
        levels = [
            Level("batch", c.batch, "parallel", digits(1, c.outer)),
            Level("panel", self.panels, "serial" if c.outer else "parallel", self._column(1)),
            *(Level(f"k{n}", k.extent, "serial", {k: 1}) for n, k in enumerate(c.k_axes)),
            Level("lane", self.width, "vector", {c.vector: 1}),
        ]
        plain = Local({**local[self.store].strides, **self._k_steps()}, local[self.store].nbytes)
        return describe("copy", store, levels, self.rows, {self.store: plain})

    def _k_steps(self) -> dict[str, Array]:
        step: Array = self.width
        found = {}
        for n, k in reversed(list(enumerate(self.c.k_axes))):
            found[f"k{n}"] = step
            step = step * k.extent
        return found

    def _row_copy(self, outer: list[Level], local: dict[Tensor, Local]) -> Statement:
        """The rows of a tile next to each other."""
        c = self.c
        rows = Buffer("rows", (1,), c.a.dtype)
        strides: dict[str, Array | int] = {"i": 1}
        step: Array = self.mr
        for n, k in reversed(list(enumerate(c.k_axes))):
            strides[f"k{n}"] = step
            step = step * k.extent
        levels = [
            *(level for level in outer if level.name != "jj"),
            *(Level(f"k{n}", k.extent, "serial", {k: 1}) for n, k in enumerate(c.k_axes)),
            Level("i", self.mr, "vector", digits(1, c.m_axes)),
        ]
        place = Local(strides, step * c.a.dtype.itemsize)
        index: tuple[Expr, ...] = (c.k_axes[-1],)
        return describe("rows", Store(rows, index, c.a), levels, self.rows, {rows: place})
