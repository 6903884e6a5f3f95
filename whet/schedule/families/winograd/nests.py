"""The loop nests of Winograd schedules, for a whole population at once.

    input    v[...] = image                       every point of a tile, transformed
    update   acc[i, v, :] += v * u                the products
    store    m[...] = acc
    output   t[...] = m                           every point of a tile
    finish   y[...] = epilogue(t)                 every output of a tile

Whole phases and blocks that go through all phases have the same statements; what is a parallel
loop in one is a serial loop in the other.  The operations of the transforms count in equal shares
for the points that they make.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, as_expr, elements
from whet.ir.program import Buffer, Store
from whet.ir.tensor import Tensor
from whet.schedule.algorithms.transforms import Transform
from whet.schedule.families.winograd.match import Winograd
from whet.schedule.program.access import map_expr
from whet.schedule.program.loops import power_of_two_below
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
    position,
    start_at,
)
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import MARKS, Statement


def winograd_nests(
    w: Winograd, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The statements of all candidates."""
    found: list[Statement] = []
    terms = np.asarray(holes.get("terms", np.zeros(len(holes["m"]), np.int64)))
    for m in map(int, np.unique(holes["m"])):
        for most in map(int, np.unique(terms[holes["m"] == m])):
            rows = np.flatnonzero((holes["m"] == m) & (terms == most))
            part = {n: c[rows] for n, c in holes.items()}
            found += _Nest(w, m, most, part, rows).statements()
    return tuple(found)


class _Nest:
    """Candidates with the same number of outputs per tile and terms per running sum."""

    def __init__(self, w: Winograd, m: int, terms: int, holes: Population, rows: Array) -> None:
        self.w, self.m, self.rows = w, m, rows
        self.cut = cut_of([k.extent for k in (*w.moving, *w.depth)], terms)
        self.mr, self.nv, self.lanes = holes["mr"], holes["nv"], holes["lanes"]
        self.width = self.nv * self.lanes
        self.sizes, self.points = w.sizes(m), w.points(m)
        self.tiles = w.tiles(m)
        per_image = elements(self.tiles)
        self.rows_out = per_image * elements(w.batch)
        self.rows_in = per_image * elements(w.positions)
        block = holes.get("block", np.zeros(len(rows), np.int64))
        self.blocked = (block > 0) & (block < self.rows_out) & (not w.shifts)
        self.held_out = np.where(self.blocked, block, self.rows_out)
        self.held_in = np.where(self.blocked, block, self.rows_in)
        self.blocks = np.where(self.blocked, ceil_div(self.rows_out, np.maximum(block, 1)), 1)
        self.ppc = holes.get("panels_per_chunk", np.ones(len(rows), np.int64))
        dtype = w.reduce.dtype
        self.v, self.prod = Buffer("v", (1,), dtype), Buffer("m", (1,), dtype)
        self.u, self.acc = Buffer("u", (1,), dtype), Buffer("acc", (1,), dtype, scope="register")
        self.t = Buffer("t", (1,), dtype, scope="register")
        self.total = self.acc if self.cut is None else Buffer("total", (1,), dtype)

    def statements(self) -> list[Statement]:
        return [self.input(), *self.products(), *self.output()]

    # ------------------------------------------------------------------------------- transforms
    def tile(self, number: Array | int, positions: Sequence[Axis]) -> Moves:
        """The place of a tile of that number in the image."""
        w, at = self.w, digits(number, [*positions, *self.tiles])
        found: dict[Expr, Array] = {old: at[new] for old, new in zip(w.batch, positions)}
        for tile, pair in zip(self.tiles, w.pairs):
            found[pair.outputs] = position(pair.start(tile, self.m), at)
        return found

    def each_tile(self, positions: Sequence[Axis], total: int) -> list[Level]:
        """The loops over tiles, by blocks or by rows of tiles."""
        inner = elements(self.tiles[1:])
        per_step = np.where(self.blocked, self.held_out, inner)
        steps = np.where(self.blocked, self.blocks, total // inner)
        return [
            Level("p", steps, "parallel", self.tile(per_step, positions)),
            Level("row", per_step, "serial", self.tile(1, positions)),
        ]

    def each_point(self, counts: Sequence[int], moved: bool) -> list[Level]:
        return [
            Level(f"u{n}", count, "unroll", {pair.outputs: pair.step} if moved else {})
            for n, (count, pair) in enumerate(zip(counts, self.w.pairs))
        ]

    def planes(self, rows: Array, numbers: int) -> dict[str, Array | int]:
        """Strides of V or M: an odd number of lines per point."""
        per_line = 64 // self.v.dtype.itemsize
        lines = ceil_div(rows * numbers, per_line)
        step: Array = (lines + (lines % 2 == 0)) * per_line
        found: dict[str, Array | int] = {"xi": step, "row": numbers, "lane": 1}
        for n in range(len(self.sizes)):
            found[f"u{n}"] = step * math.prod(self.sizes[n + 1 :])
        return found

    def place(self, rows: Array, numbers: int, **strides: Array | int) -> LocalBuffer:
        planes = self.planes(rows, numbers)
        size = np.asarray(planes["xi"]) * self.points * self.v.dtype.itemsize
        inner = elements(self.tiles[1:])
        step = np.where(self.blocked, 0, numbers * inner)
        return LocalBuffer({**planes, "p": step, **strides}, size)

    def input(self) -> Statement:
        w = self.w
        *outer, last = w.depth
        lanes = np.minimum(self.lanes, power_of_two_below(last.extent))
        zero = {p.kernel: as_expr(0) for p in (*w.pairs, *w.shifts.values())}
        outer = [*w.group, *outer]
        strides: dict[str, Array | int] = {"cb": lanes}
        step = last.extent
        levels = self.each_tile(self.w.positions, self.rows_in)
        for n, axis in enumerate(outer):
            levels.append(Level(f"c{n}", axis.extent, "serial", {axis: 1}))
        for n, axis in reversed(list(enumerate(outer))):
            strides[f"c{n}"] = step
            step *= axis.extent
        first = start_at(1, lanes, last.extent)
        levels += [
            Level("cb", ceil_div(last.extent, lanes), "serial", {last: first}),
            *self.each_point(self.sizes, moved=True),
            Level("lane", lanes, "vector", {last: 1}),
        ]
        store = Store(self.v, (last,), substitute(w.image, zero))
        local: dict[Tensor, LocalBuffer] = {
            self.v: self.place(self.held_in, w.all_channels, **strides)
        }
        made = describe("input", store, levels, self.rows, local)
        return self.with_transform(made, w.input_transform(self.m))

    def output(self) -> list[Statement]:
        w = self.w
        lanes = np.minimum(self.lanes, power_of_two_below(w.columns))
        columns = [
            *(Level("og", g.extent, "serial", {g: 1}) for g in w.group),
            Level("ob", ceil_div(w.columns, lanes), "serial",
                  {w.vector: start_at(1, lanes, w.columns)}),
        ]  # fmt: skip
        lane = Level("lane", lanes, "vector", {w.vector: 1})
        outer = [*self.each_tile(w.batch, self.rows_out), *columns]
        t: dict[Tensor, LocalBuffer] = {
            self.prod: self.place(
                self.held_out, w.all_columns, ob=start_at(1, lanes, w.columns), og=w.columns
            ),
            self.t: LocalBuffer(
                {
                    "lane": 1,
                    **{f"u{n}": lanes * math.prod(self.sizes[:n]) for n in range(len(self.sizes))},
                },
                lanes * self.points * self.t.dtype.itemsize,
            ),
        }
        load = Store(self.t, (w.vector,), Read(self.prod, (w.vector,)))
        read = describe("output", load, [*outer, *self.each_point(self.sizes, moved=False), lane],
                        self.rows, t)  # fmt: skip
        value = Read(self.t, (w.vector,))
        body = map_expr(w.stage.body, lambda e: value if e is w.reduce else None)
        finish = describe(
            "finish",
            Store(w.stage.target, (w.stage.address,), body),
            [*outer, *self.each_point([self.m] * len(w.pairs), moved=True), lane],
            self.rows,
            t,
            guarded=any(pair.is_ragged(self.m) for pair in w.pairs),
        )
        return [self.with_transform(read, w.output_transform(self.m)), finish]

    def with_transform(self, s: Statement, tile: Transform) -> Statement:
        count = s.operations.get("float_addsub", 0.0) + tile.operations / self.points
        return dataclasses.replace(s, operations={**s.operations, "float_addsub": count})

    # --------------------------------------------------------------------------------- products
    def products(self) -> list[Statement]:
        w = self.w
        rows = np.full(len(self.rows), elements(self.tiles)) if w.shifts else self.held_out
        mr = np.minimum(self.mr, rows)
        panels = w.groups * ceil_div(w.columns, self.width)
        per_chunk = np.where(self.blocked, panels, self.ppc)
        over = np.where(self.blocked, MARKS["serial"], MARKS["parallel"])
        batch = list(zip(w.batch, w.positions)) if w.shifts else []
        outer = [
            Level("p", self.blocks, "parallel"),
            Level("xi", self.points, "parallel", marks=over),
            Level("chunk", ceil_div(panels, per_chunk), "parallel", marks=over),
            Level("jj", per_chunk, "serial"),
            *(Level(f"b{n}", axis.extent, "serial") for n, (axis, _) in enumerate(batch)),
            Level("io", ceil_div(rows, mr), "serial"),
        ]
        axes = [*w.moving, *w.depth]
        reduced = [Level(f"k{n}", k.extent, "serial", reduces=True) for n, k in enumerate(axes)]
        tile = [
            Level("i", mr, "unroll"),
            Level("v", self.nv, "unroll"),
            Level("lane", self.lanes, "vector"),
        ]
        places = self.product_places(rows, mr, panels, per_chunk, axes)
        reduced, local = cut_sums(reduced, places, self.cut)
        at = Read(self.acc, (as_expr(0),))
        left, right = Read(self.v, (as_expr(0),)), Read(self.u, (as_expr(0),))
        update = Store(self.acc, at.indices, at + left * right)
        store = Store(self.prod, at.indices, Read(self.total, at.indices))
        return [
            describe("update", update, [*outer, *reduced, *tile], self.rows, local),
            describe("store", store, [*outer, *tile], self.rows, local),
        ]

    def product_places(
        self, rows: Array, mr: Array, panels: Array, per_chunk: Array, axes: Sequence[Axis]
    ) -> dict[Tensor, LocalBuffer]:
        w = self.w
        held_in, held_out = self.planes(self.held_in, w.all_channels), self.planes(
            self.held_out, w.all_columns)  # fmt: skip
        tile = start_at(1, mr, rows)
        u: dict[str, Array | int] = {"lane": 1, "v": self.lanes}
        step: Array = self.width
        for n, axis in reversed(list(enumerate(axes))):
            u[f"k{n}"] = step
            step = step * axis.extent
        u |= {"jj": step * clipped(1, panels, per_chunk), "xi": step * panels}
        u["chunk"] = step * clipped(per_chunk, panels, per_chunk)
        v: dict[str, Array | int] = {"xi": held_in["xi"], "i": w.all_channels}
        v["io"] = tile * w.all_channels
        m: dict[str, Array | int] = {"xi": held_out["xi"], "i": w.all_columns}
        m["io"] = tile * w.all_columns
        m |= {"lane": 1, "v": self.lanes}
        for name, number in (("jj", clipped(1, panels, per_chunk)),
                             ("chunk", clipped(per_chunk, panels, per_chunk))):  # fmt: skip
            group, within = number // (panels // w.groups), number % (panels // w.groups)
            m[name] = group * w.columns + start_at(within, self.width, w.columns)
            v[name] = group * w.channels
        inner = 1
        for n, axis in reversed(list(enumerate(w.depth, len(w.shifts)))):
            v[f"k{n}"] = inner
            inner *= axis.extent
        if w.shifts:
            into, out = elements(self.tiles) * w.all_channels, elements(self.tiles) * w.all_columns
            numbers = {pair: n for n, pair in enumerate(w.shifts.values())}
            for n, (axis, longer) in reversed(list(enumerate(zip(w.batch, w.positions)))):
                v[f"b{n}"], m[f"b{n}"] = into, out
                if axis in w.shifts:
                    v[f"k{numbers[w.shifts[axis]]}"] = into * w.shifts[axis].step
                into, out = into * longer.extent, out * axis.extent
        size = self.v.dtype.itemsize
        sums = LocalBuffer({"i": self.width, "v": self.lanes, "lane": 1}, mr * self.width * size)
        return {
            self.v: LocalBuffer(v, np.asarray(held_in["xi"]) * self.points * size),
            self.prod: LocalBuffer(m, np.asarray(held_out["xi"]) * self.points * size),
            self.u: LocalBuffer(u, step * panels * self.points * size),
            self.acc: sums,
            self.total: sums,
        }
