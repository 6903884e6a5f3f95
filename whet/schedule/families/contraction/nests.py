"""The loop nests of contractions, for a whole population at once.

    copy     panels[...] = b                  where b is copied at run time, ahead or beside
    update   acc[i, v, :] += a * b
    finish   y[...] = epilogue(acc)

The parallel loop is described as the three that it stands for (batch, blocks, chunks).
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import substitute
from whet.ir.expr import Expr, Read, as_expr
from whet.ir.program import Buffer, LoopKind, Store
from whet.ir.tensor import Tensor
from whet.schedule.families.contraction.match import AHEAD, BESIDE, IN_PLACE, Contraction
from whet.schedule.program.access import map_expr
from whet.schedule.program.register_tile import cut_of
from whet.schedule.space.levels import (
    Level,
    LocalBuffer,
    Moves,
    ceil_div,
    clipped,
    cut_sums,
    describe,
    digits,
    start_at,
)
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import Statement


def contraction_nests(
    c: Contraction, target: CpuTarget, threads: int, holes: Population, images: int = 1
) -> tuple[Statement, ...]:
    """The statements of all candidates.

    With several images, these and the batch are shared out, and the rest is one after the other.
    """
    count = len(holes["mr"])
    nothing = np.zeros(count, np.int64)
    terms, way, skip = (np.asarray(holes.get(n, nothing)) for n in ("terms", "pack_b", "skip"))
    wide = holes["nv"] * holes["lanes"] > c.columns
    idle = holes["lanes"] > c.columns
    ahead = (way == AHEAD) | (not c.b_is_contiguous) | idle
    way = np.where(way == BESIDE, BESIDE, np.where(ahead, AHEAD, IN_PLACE))
    way = np.full(count, AHEAD) if c.b_is_constant else way
    kinds = np.stack([way, terms, skip, wide, idle], axis=1)
    found: list[Statement] = []
    for kind in np.unique(kinds, axis=0):
        rows = np.flatnonzero((kinds == kind).all(axis=1))
        part = {name: column[rows] for name, column in holes.items()}
        found += _Nest(c, part, images, rows, *map(int, kind[:3])).statements()
    return tuple(found)


class _Nest:
    """Candidates that have the same structure: what happens to b and a, how sums are cut."""

    def __init__(
        self, c: Contraction, holes: Population, images: int, rows: Array, way: int,
        terms: int, skip: int,
    ) -> None:  # fmt: skip
        self.images = images
        self.c, self.rows, self.way = c, rows, way
        self.skips = bool(skip)
        self.cut = cut_of([k.extent for k in c.k_axes], terms)
        self.mr, self.nv, self.lanes = holes["mr"], holes["nv"], holes["lanes"]
        self.tpb, self.ppc = holes["tiles_per_block"], holes["panels_per_chunk"]
        self.width = self.nv * self.lanes
        self.tiles, self.panels = ceil_div(c.rows, self.mr), ceil_div(c.columns, self.width)
        self.acc = Buffer("acc", (1, 1, 1), c.a.dtype, scope="register")
        self.total = self.acc if self.cut is None else Buffer("total", (1, 1, 1), c.a.dtype)
        self.store = Buffer("panel" if way == BESIDE else "panels", (1,), c.b.dtype)
        # The first tile copies the panel while it reads it.
        self.fused = way == BESIDE and c.b_is_contiguous and bool((self.lanes <= c.columns).all())

    def statements(self) -> list[Statement]:
        c = self.c
        places: dict[Tensor, LocalBuffer] = {
            self.acc: self._registers(), self.total: self._registers(), self.store: self._panels()
        }  # fmt: skip
        levels = [Level(f"k{n}", k.extent, "serial", {k: 1}, reduces=True)
                  for n, k in enumerate(c.k_axes)]  # fmt: skip
        reduced, local = cut_sums(levels, places, self.cut)
        at = Read(self.acc, (as_expr(0),) * 3)
        in_panels = Read(self.store, (c.vector,))
        b = substitute(c.b, c.k_values) if self.way == IN_PLACE else in_panels
        update = Store(self.acc, at.indices, at + c.a * b)
        outer, inner = self._outer(), self._tile()
        found = [
            describe("update", update, [*outer, *reduced, *inner], self.rows, local,
                     guarded=self.skips),
            *self._finish(Read(self.total, at.indices), outer, inner, local),
        ]  # fmt: skip
        if self.way == BESIDE:
            found.insert(0, self._copy_beside(outer, reduced if self.fused else levels, local))
        elif self.way == AHEAD and not c.b_is_constant:
            found.insert(0, self._copy())
        return found

    def _finish(
        self, total: Expr, outer: list[Level], tile: list[Level], local: dict[Tensor, LocalBuffer]
    ) -> list[Statement]:
        """What becomes of sums: one statement, or one for every range of columns."""
        c = self.c

        def statement(
            target: Buffer, address: Expr, value: Expr, inner: list[Level], *, guarded: bool
        ) -> Statement:
            body = map_expr(value, lambda e: total if e is c.reduce else None)
            store = Store(target, (address,), body)
            return describe("finish", store, [*outer, *inner], self.rows, local, guarded=guarded)

        if not c.ranges:
            stage = c.stage
            return [statement(stage.target, stage.address, stage.body, tile, guarded=False)]
        i, v, lane = tile
        return [
            statement(r.target, r.address, r.value, [v, i, lane], guarded=True) for r in c.ranges
        ]

    # ---------------------------------------------------------------------------------- levels
    def _column(self, panel: Array | int) -> Moves:
        if bool((self.width > self.c.columns).all()):
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
        times = self.tpb - 1 if self.fused else self.tpb
        io = Level("io", times, "serial", self._row(clipped(1, self.tiles, self.tpb)))
        kind: LoopKind = "parallel" if self.images == 1 else "serial"
        repeated = [Level("image", self.images, "parallel", {})] if self.images > 1 else []
        return [
            *repeated,
            Level("batch", c.batch, "parallel", digits(1, c.outer)),
            Level("block", blocks, kind, self._row(number)),
            Level("chunk", chunks, kind, self._column(panel)),
            jj,
            io,
        ]

    def _tile(self) -> list[Level]:
        c = self.c
        return [
            Level("i", self.mr, "unroll", digits(1, c.m_axes)),
            Level("v", self.nv, "unroll", {c.vector: self._second_vector()}),
            Level("lane", self.lanes, "vector", {c.vector: 1}),
        ]

    def _second_vector(self) -> Array:
        """The start of a panel's second vector: it may be the last, which ends at the edge."""
        last = np.maximum(self.c.columns - self.lanes, 0)
        return np.where(self.width > self.c.columns, np.minimum(self.lanes, last), self.lanes)

    # --------------------------------------------------------------------------------- buffers
    def _registers(self) -> LocalBuffer:
        size = self.mr * self.width * self.acc.dtype.itemsize
        return LocalBuffer({"i": self.width, "v": self.lanes, "lane": 1}, size)

    def _panels(self) -> LocalBuffer:
        """[outer..., panel, k..., column within the panel]"""
        c = self.c
        strides: dict[str, Array | int] = {"lane": 1, "v": self.lanes}
        step: Array = self.width
        for n, k in reversed(list(enumerate(c.k_axes))):
            strides[f"k{n}"] = step
            step = step * k.extent
        if self.way == BESIDE:
            return LocalBuffer(strides, step * c.b.dtype.itemsize)
        strides["jj"] = step * clipped(1, self.panels, self.ppc)
        strides["chunk"] = step * clipped(self.ppc, self.panels, self.ppc)
        strides["batch"] = step * self.panels
        strides["panel"] = step
        step = step * self.panels
        for n, axis in reversed(list(enumerate(c.outer))):
            strides[f"outer{n}"] = step
            step = step * axis.extent
        return LocalBuffer(strides, step * c.b.dtype.itemsize)

    # ---------------------------------------------------------------------------------- copies
    def _copy(self) -> Statement:
        """b into panels, which threads share."""
        c = self.c
        value = substitute(c.b, c.k_values)
        store = Store(self.store, (c.vector,), value)
        levels = [
            *(
                Level(f"outer{n}", axis.extent, "parallel", {axis: 1})
                for n, axis in enumerate(c.outer)
            ),
            Level("panel", self.panels, "parallel", self._column(1)),
            *(Level(f"k{n}", k.extent, "serial", {k: 1}) for n, k in enumerate(c.k_axes)),
            Level("lane", self.width, "vector", {c.vector: 1}),
        ]
        return describe("copy", store, levels, self.rows, {self.store: self._panels()})

    def _copy_beside(
        self, outer: list[Level], reduced: list[Level], local: dict[Tensor, LocalBuffer]
    ) -> Statement:
        """One panel of b, before its tiles or by the first of them."""
        c = self.c
        store = Store(self.store, (c.vector,), substitute(c.b, c.k_values))
        around = [level for level in outer if level.name != "io"]
        vector = [level for level in self._tile() if level.name != "i"]
        return describe("copy", store, [*around, *reduced, *vector], self.rows, local)
