"""Row stages on whole rows that a register tile holds.

    tile[i, v, lane]                         a few rows, as vectors
    for each stage, for each row i:
      a reduction:    the row's vectors combined in pairs, then across lanes, to one number
      element-wise:   vector by vector, into registers again or to where the stage belongs

What a product leaves in its accumulators goes through all stages without being written and read
in between.  A row that is no multiple of the lanes ends with a vector that begins before its end:
the elements that it shares with the one before are computed twice, and reduced once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, as_expr, select
from whet.ir.program import Buffer, Stmt, Store
from whet.ir.tensor import Compute, Tensor, subexpressions
from whet.schedule.families.attention.nan_rows import may_miss_nan
from whet.schedule.families.rows.match import Rows
from whet.schedule.program.access import address_form, flatten_accesses, map_expr, memory_of
from whet.schedule.program.accumulate import combine
from whet.schedule.program.loops import identity_element, loop, start_of
from whet.schedule.program.register_tile import RegisterTile


@dataclass(frozen=True)
class RowVectors:
    """A row of `columns` elements as vectors of `lanes`."""

    columns: int
    lanes: int

    @property
    def count(self) -> int:
        return -(-self.columns // self.lanes)

    @property
    def repeated(self) -> int:
        """Lanes of the last vector that the one before it has as well."""
        return self.count * self.lanes - self.columns

    def column(self, vector: Expr, lane: Expr) -> Expr:
        return start_of(vector, self.lanes, self.columns) + lane


def stay_in_registers(r: Rows, scores: Compute) -> bool:
    """Whether every stage is a row as long as the scores', or one number, that reads earlier ones
    at its own place or along a whole row."""
    columns = scores.shape[-1]
    earlier: set[Tensor] = {scores}
    for stage in r.stages:
        lines = [a for a in stage.axes[r.row_rank :] if a.extent > 1]
        reduces = [e for e in subexpressions(stage.body) if isinstance(e, Reduce)]
        reduced = [a for e in reduces for a in e.axes if a.extent > 1]
        if any(a.extent != columns for a in (*lines, *reduced)):
            return False
        if len(lines) + bool(reduces) > 1 or len(reduced) > len(reduces):
            return False
        along = {*lines, *reduced}
        for read in subexpressions(stage.body):
            if isinstance(read, Read) and read.tensor in earlier:
                places = zip(read.indices[r.row_rank :], read.tensor.shape[r.row_rank :])
                if any(index not in along for index, extent in places if extent > 1):
                    return False
        earlier.add(stage)
    return True


class RegisterRows:
    """Writes the stages of the rows in a tile, whose positions on the leading axes are `rows`.

    `kept` says which row of which buffer a stage goes to that is neither an output nor read by
    another stage.
    """

    def __init__(
        self,
        r: Rows,
        tile: RegisterTile,
        vectors: RowVectors,
        rows: Sequence[Expr],
        scores: tuple[Tensor, Buffer],
        kept: Mapping[Tensor, tuple[Buffer, Expr]],
    ) -> None:
        self.r, self.tile, self.vectors, self.rows, self.kept = r, tile, vectors, rows, kept
        self.places: dict[Tensor, Buffer] = dict([scores])
        self.scratch: list[Buffer] = []

    def stage(self, stage: Compute) -> Stmt:
        inner = stage.axes[self.r.row_rank :]
        body = flatten_accesses(stage, self.r.task)
        env: dict[Expr, Expr] = {
            **dict(zip(stage.axes, self.rows)),
            **{a: as_expr(0) for a in inner},
        }
        along = [a for a in inner if a.extent > 1]
        return self.line(stage, body, env, along[0]) if along else self.number(stage, body, env)

    def line(self, stage: Compute, body: Expr, env: dict[Expr, Expr], axis: Axis) -> Stmt:
        """An element-wise stage over the rows."""
        t = self.tile
        env = {**env, axis: self.vectors.column(t.v, t.lane)}
        target, index = self.target(stage, (t.mr, t.nv, t.lanes), (t.i, t.v, t.lane))
        at = tuple(substitute(e, env) for e in index)
        return t.each(Store(target, at, substitute(self.local(body), env)))

    def number(self, stage: Compute, body: Expr, env: dict[Expr, Expr]) -> Stmt:
        """A stage that gives one number per row."""
        t = self.tile
        made: list[Stmt] = []
        results: dict[Expr, Expr] = {}
        for reduce in [e for e in subexpressions(body) if isinstance(e, Reduce)]:
            loose = may_miss_nan(stage, self.r.stages, self.r.row_rank)
            statements, results[reduce] = self.reduction(reduce, env, loose=loose)
            made += statements
        value = substitute(self.local(map_expr(body, results.get)), env)
        target, index = self.target(stage, (t.mr,), (t.i,))
        made.append(Store(target, tuple(substitute(e, env) for e in index), value))
        return loop(t.i, t.mr, *made, kind="unroll")

    def reduction(
        self, reduce: Reduce, env: dict[Expr, Expr], *, loose: bool
    ) -> tuple[list[Stmt], Expr]:
        """The vectors of a row reduced to one, and the expression of what its lanes give.

        A `loose` extreme may miss a NaN.
        """
        t, kind = self.tile, reduce.kind
        env = {**env, **{a: as_expr(0) for a in reduce.axes}}
        env |= {a: self.vectors.column(t.v, t.lane) for a in reduce.axes if a.extent > 1}
        value = substitute(self.local(reduce.value), env)
        if all(a.extent == 1 for a in reduce.axes):
            return [], value
        acc = self.new("acc", (t.nv, t.lanes), reduce.value)
        once = t.nv - 1 if self.vectors.repeated else t.nv
        made: list[Stmt] = [loop(t.v, once, self.vector(acc, t.v, value), kind="unroll")]
        if once < t.nv:
            again = t.lane < self.vectors.repeated
            last = substitute(value, {t.v: as_expr(once)})
            new = select(again, identity_element(kind, acc.dtype), last)
            made.append(self.vector(acc, as_expr(once), new))
        width = t.nv
        while width > 1:
            half = width // 2
            for n in range(half):
                a, b = acc[n, t.lane], acc[width - half + n, t.lane]
                pair = _further(kind, a, b) if loose else combine(kind, a, b)
                made.append(self.vector(acc, as_expr(n), pair))
            width -= half
        across = Axis("across", t.lanes, "R")
        return made, Reduce(kind, (across,), acc[0, across])

    def vector(self, acc: Buffer, v: Expr, value: Expr) -> Stmt:
        lane, lanes = self.tile.lane, self.tile.lanes
        return loop(lane, lanes, Store(acc, (v, lane), value), kind="vector")

    # ------------------------------------------------------------------------------ places
    def target(
        self, stage: Compute, shape: tuple[int, ...], at: tuple[Expr, ...]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        """The place of a stage, as indices in its axes: an output, a kept row, or registers."""
        if stage in self.r.task.buffers:
            output = self.r.task.buffers[stage]
            return memory_of(stage, self.r.task), (address_form(output, stage.axes).expr(),)
        if stage in self.kept:
            buffer, row = self.kept[stage]
            return buffer, (row, *stage.axes[self.r.row_rank :])
        self.places[stage] = self.new("line" if len(at) > 1 else "number", shape, stage.body)
        return self.places[stage], at

    def new(self, hint: str, shape: tuple[int, ...], like: Expr) -> Buffer:
        name = f"{hint}{len(self.scratch) + 1}"
        self.scratch.append(Buffer(name, shape, like.dtype, scope="register"))
        return self.scratch[-1]

    def local(self, e: Expr) -> Expr:
        """Reads of earlier stages as reads of the registers that hold them."""
        at = (self.tile.i, self.tile.v, self.tile.lane)

        def change(x: Expr) -> Expr | None:
            if isinstance(x, Read) and x.tensor in self.places:
                place = self.places[x.tensor]
                return Read(place, at[: len(place.shape)])
            return None

        return map_expr(e, change)


def _further(kind: str, a: Expr, b: Expr) -> Expr:
    """The larger or smaller of two numbers; either if one is NaN."""
    return select(b > a if kind == "max" else b < a, b, a)
