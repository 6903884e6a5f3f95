"""The loader: brings a tile of any operand into a stage of the ring.

    x at 64 * row + k, rows of 8 elements          copy ring[slot, row, 4 * c] <- x[...], 4 elements
    x[row, k] * s[row]                      ->     ring[slot, row, k] = x[row, k] * s[row]

Elements of memory are copied in runs as long as their addresses allow; what must be computed
takes the way through registers, so that its producer needs no kernel of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Var, all_of, call, elements, select
from whet.ir.program import Buffer, If, Stmt, Store
from whet.ir.threads import Copy
from whet.schedule.families.gpu_contraction.match import Span
from whet.schedule.families.gpu_contraction.operand import Operand
from whet.schedule.families.gpu_contraction.place import Place, place_of, run_of, unit_axis
from whet.schedule.program.loops import loop, split_index
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Share:
    """One of several parts of a tile, each of which a thread loads at another time."""

    number: Expr
    count: int
    valid: Expr
    """Whether there is such a tile; there is nothing to read where not."""


@dataclass(frozen=True, eq=False)
class Loader:
    """The tiles of an operand, on their way into `ring`[stage, row, k] or [stage, k, row]."""

    operand: Operand
    task: Task
    ring: Buffer
    depth_last: bool
    """Whether neighbours in the ring are neighbours along the depth."""
    rows: Span
    first_row: Expr
    bk: int
    tiles: int
    """Tiles of the depth, the last of which may lie behind it."""
    outer: Mapping[Expr, Expr]
    thread: Expr
    threads: int
    near: bool = False
    """Whether the block reads elements again that it has just read."""

    @property
    def run(self) -> int:
        """Elements that are copied at once, in the background; 0 if all go through registers."""
        place = place_of(self.operand.value, self.task)
        near = self.operand.depth[-1] if self.depth_last else self.operand.rows[-1]
        return run_of(place, near) if place else 0

    def load(self, tile: Expr, slot: Expr, share: Share | None = None) -> Stmt:
        """The statements of one thread that bring tile number `tile` of the depth into a slot."""
        place = place_of(self.operand.value, self.task)
        unit = unit_axis(place, (*self.operand.rows, *self.operand.depth)) if place else None
        run = self.run
        if run == 0:
            place, run = None, 1
        # Neighbouring threads read neighbours in memory, whatever their order in the ring.
        along_depth = self.depth_last
        if run == 1 and unit is not None:
            along_depth = unit in self.operand.depth
        height, width = (self.rows.size, self.bk) if along_depth else (self.bk, self.rows.size)
        high, low, again = self._positions(height, width // run, share)
        row, k = (high, low * run) if along_depth else (low * run, high)
        valid = () if share is None else (share.valid,)
        return again(self._element(place, run, tile, slot, row, k, valid))

    def _positions(
        self, height: int, width: int, share: Share | None
    ) -> tuple[Expr, Expr, _Repeat]:
        """The position of a thread within height x width, and the loop over all of them."""
        n, total = Var("i"), height * width
        every = times = -(-total // self.threads)
        i: Expr = n
        if share is not None:
            times = -(-every // share.count)
            i = share.number * times + n
        if self.threads % width == 0:
            # The position along the width stays, so that all that depends on it is computed once.
            high: Expr = self.thread // width + i * (self.threads // width)
            low: Expr = self.thread % width
            inside = high < height
        else:
            number = self.thread + i * self.threads
            high, low, inside = number // width, number % width, number < total
        conditions = [inside] if total % self.threads else []
        if share is not None and every % share.count:
            conditions.insert(0, i < every)
        return high, low, _Repeat(n, times, conditions)

    def _element(
        self, place: Place | None, run: int, tile: Expr, slot: Expr, row: Expr, k: Expr,
        valid: Sequence[Expr],
    ) -> Stmt:  # fmt: skip
        """A run of elements that begins at a position within the tile, where that is valid."""
        operand = self.operand
        count = elements(operand.rows)
        first = self.first_row + row
        inside = [*valid]
        if self.rows.overruns and count < self.rows.tiles * self.rows.size:
            # Nobody looks at sums of rows outside.  A copy brings zeros in their place: if all
            # blocks read one row for them, they would wait for the cache that has it.
            if place is not None:
                inside.append(first < count)
            first = call("min", first, count - (1 if self.depth_last else run))
        env: dict[Expr, Expr] = {
            **self.outer,
            **split_index(first, operand.rows),
            **_split_depth(tile, k, self.bk, operand.depth),
        }
        if self.tiles * self.bk > elements(operand.depth):
            inside.append(tile * self.bk + k < elements(operand.depth))
        at = (slot, row, k) if self.depth_last else (slot, k, row)
        if place is None:
            value = substitute(operand.value, env)
            return Store(self.ring, at, select(all_of(inside), value, 0) if inside else value)
        inside.append(substitute(place.condition, env))
        start = tuple(substitute(x, env) for x in place.indices)
        return Copy(self.ring, at, place.memory, start, run, all_of(inside), self.near)


@dataclass(frozen=True, eq=False)
class _Repeat:
    """The loop of a thread over its part of a tile."""

    var: Var
    times: int
    conditions: Sequence[Expr]

    def __call__(self, stmt: Stmt) -> Stmt:
        if self.conditions:
            stmt = If(all_of(self.conditions), (stmt,))
        return loop(self.var, self.times, stmt, kind="unroll")


def _split_depth(tile: Expr, k: Expr, bk: int, axes: tuple[Axis, ...]) -> dict[Expr, Expr]:
    """Positions on the reduced axes of position k of a tile of the depth.

    Where tiles do not reach over ends of the last axis, all threads agree on the others.
    """
    *others, last = axes
    if others and last.extent % bk == 0:
        per = last.extent // bk
        return {**split_index(tile // per, others), last: tile % per * bk + k}
    return split_index(tile * bk + k, axes)
