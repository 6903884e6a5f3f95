"""The loop nests of staged windows, for a whole population at once.

copy     copy[r, ...] = x          one per phase of the columns, perhaps ahead of its use
update   acc[i, v, :] = combine(acc, value)
finish   y[...] = epilogue(acc)
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import Expr, Reduce, Var, as_expr, elements
from whet.ir.program import Buffer, Store
from whet.ir.tensor import Tensor, subexpressions
from whet.schedule.families.staged.lower import FEW, TOP, image_at, over_copy, row_of_image
from whet.schedule.families.staged.match import Copy, Staged, by_columns, width_of_phase
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
    position,
    start_at,
)
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import MARKS, Statement

ROW, COLUMN = Var("row"), Var("column")


def staged_nests(
    s: Staged, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The statements of all candidates."""
    every = np.arange(len(holes["px"]))
    px, nv, lanes = holes["px"], holes["nv"], holes["lanes"]
    steps = _Steps(s, holes)
    memory = Buffer("copy", (1,), s.window.read.dtype)
    found: list[Statement] = []
    for ahead, name in enumerate(("copy", "copy ahead", "copy by tiles")):
        (rows,) = np.nonzero(holes["ahead"] == ahead)
        if len(rows):
            chosen = _Steps(s, {hole: column[rows] for hole, column in holes.items()})
            phases = range(s.columns.step)
            found += [chosen.copy(name, memory, phase, rows) for phase in phases]
    body = over_copy(s, Copy(1, 1, 1, 0, 1), memory).body
    (reduce,) = [e for e in subexpressions(body) if isinstance(e, Reduce)]
    made = Accumulator(0, by_columns(s, reduce), (1, 1, 1), (as_expr(0),) * 3)
    size = px * nv * lanes * made.value.dtype.itemsize
    local: dict[Tensor, LocalBuffer] = {
        made.value: LocalBuffer({"i": nv * lanes, "v": lanes, "lane": 1}, size),
        memory: steps.reads_of_copy(made.reduce),
    }
    kinds = loop_kinds(made.reduce.axes)
    window = [Level(f"k{n}", a.extent, kind, {a: 1}, reduces=True)
              for n, (a, kind) in enumerate(zip(made.reduce.axes, kinds))]  # fmt: skip
    (update,) = made.update(made.reduce.value, [])
    assert isinstance(update, Store)
    done: dict[Expr, Expr] = {reduce: made.result}
    finish = Store(s.stage.target, (s.stage.address,), map_expr(body, done.get))
    around, tile = [*steps.outer(), *steps.panels()], steps.tile()
    return (
        *found,
        describe("update", update, [*around, *window, *tile], every, local),
        describe("finish", finish, [*around, *tile], every, local),
    )


class _Steps:
    """Levels of loops and their steps, of all candidates."""

    def __init__(self, s: Staged, holes: Population) -> None:
        self.s, self.holes = s, holes
        lanes, rows, step = holes["lanes"], holes["rows"], s.columns.step
        self.height = np.ones_like(rows)
        if s.rows is not None:
            self.height = (rows - 1) * s.rows.step + s.rows.high - s.rows.low + 1
        self.pitch = ceil_div(-(-s.image_width // step) + s.border, lanes) * lanes
        self.plane = ceil_div(s.border, lanes) * lanes + self.height * self.pitch
        self.size = step * self.plane + 2 * lanes
        self.blocks_ahead = (holes["ahead"] == 1).astype(np.int64)
        self.nbytes = self.size * (1 + self.blocks_ahead) * s.window.read.dtype.itemsize

    def outer(self) -> list[Level]:
        per_step, rows = self.holes["blocks_per_step"], self.holes["rows"]
        blocks = ceil_div(self.s.height, rows)
        total = elements(self.s.outer) * blocks

        def block(number: Array) -> Moves:
            top = start_at(number % blocks, rows, self.s.height)
            moves: dict[Expr, object] = {**digits(number // blocks, self.s.outer), TOP: top}
            if self.s.rows is not None:
                moves[self.s.rows.axis] = top
            return moves

        return [
            Level("p", ceil_div(total, per_step), "parallel",
                  block(clipped(per_step, total, per_step))),
            Level("n", per_step, "serial", block(clipped(1, total, per_step))),
        ]  # fmt: skip

    def panels(self) -> list[Level]:
        px, rows = self.holes["px"], self.holes["rows"]
        down: Moves = {}
        if self.s.rows is not None:
            down = {self.s.rows.axis: start_at(1, px, rows)}
        return [
            Level("io", ceil_div(rows, px), "serial", down),
            Level("jo", ceil_div(self.s.width, self.width), "serial",
                  {self.s.columns.axis: start_at(1, self.width, self.s.width)}),
        ]  # fmt: skip

    @property
    def width(self) -> Array:
        return self.holes["nv"] * self.holes["lanes"]

    def tile(self) -> list[Level]:
        lanes, column = self.holes["lanes"], self.s.columns.axis
        down: Moves = {} if self.s.rows is None else {self.s.rows.axis: 1}
        return [
            Level("i", self.holes["px"], "unroll", down),
            Level("v", self.holes["nv"], "unroll", {column: lanes}),
            Level("lane", lanes, "vector", {column: 1}),
        ]

    def reads_of_copy(self, reduce: Reduce) -> LocalBuffer:
        columns, rows = self.s.columns, self.s.rows
        down = 0 if rows is None else rows.step * self.pitch
        strides: dict[str, Array | int] = {
            "n": self.size * self.blocks_ahead,
            "io": start_at(1, self.holes["px"], self.holes["rows"]) * down,
            "jo": start_at(1, self.width, self.s.width),
            "i": down,
            "v": self.holes["lanes"],
            "lane": 1,
        }
        for number, axis in enumerate(reduce.axes):
            taps = [position(columns.tap, {axis: n}) for n in (0, 1)]
            first, second = (t // columns.step + t % columns.step * self.plane for t in taps)
            moved = 0 if rows is None else position(rows.tap, {axis: 1}) - position(rows.tap, {})
            strides[f"k{number}"] = second - first + moved * self.pitch
        return LocalBuffer(strides, self.nbytes)

    def copy(self, name: str, memory: Buffer, phase: int, every: Array) -> Statement:
        """The copy of a phase: ahead, as if its first block were that of the step; tile by tile, as
        if all were copied at once."""
        lanes, width = self.holes["lanes"], width_of_phase(self.s, phase)
        vectors = ceil_div(width, lanes)
        across = np.where(width >= lanes, start_at(1, lanes, width), lanes)
        row = row_of_image(self.s, TOP, ROW)
        outer: dict[Expr, Expr] = {a: a for a in self.s.outer}
        value = image_at(self.s, outer, row, COLUMN * self.s.columns.step + phase)
        marks = np.where(vectors <= FEW, MARKS["unroll"], MARKS["serial"])
        levels = [
            *self.outer(),
            Level("r", self.height, "serial", {ROW: 1}),
            Level("b", vectors, "unroll", {COLUMN: across}, marks=marks),
            Level("lane", lanes, "vector", {COLUMN: 1}),
        ]
        back = -self.size * self.blocks_ahead
        place = LocalBuffer({"n": back, "r": self.pitch, "b": across, "lane": 1}, self.nbytes)
        store = Store(memory, (as_expr(0),), value)
        return describe(name, store, levels, every, {memory: place}, guarded=True)
