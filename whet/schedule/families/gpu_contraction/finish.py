"""The end of a tile: sums of all blocks added up and made results by the rest of the stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, all_of
from whet.ir.program import Allocate, Buffer, If, Let, Stmt, Store
from whet.schedule.families.gpu_contraction.match import VECTOR, Span
from whet.schedule.program.access import map_expr
from whet.schedule.program.flat import FlatStage
from whet.schedule.program.loops import loop, split_index


@dataclass(frozen=True, eq=False)
class Finish:
    """The results of a block: those of a tile of rows and columns of a stage."""

    stage: FlatStage
    reduce: Reduce
    """The sum of the stage."""
    row_axes: tuple[Axis, ...]
    column: Axis
    rows: Span
    columns: Span
    first_row: Expr
    first_column: Expr
    outer: Mapping[Expr, Expr]

    def store(self, row: Expr, column: Expr, total: Callable[[Expr], Expr]) -> Stmt:
        """A vector of results, of which `total` says the sums by their place in it.

        They begin at a row and a column of the tile; what lies outside is left out.
        """
        e = Var("e")
        at, first = self.first_row + row, self.first_column + column
        env: dict[Expr, Expr] = {
            **self.outer,
            **split_index(at, self.row_axes),
            self.column: first + e,
        }
        value = map_expr(self.stage.body, lambda x: total(e) if x is self.reduce else None)
        stmt: Stmt = Store(
            self.stage.target, (substitute(self.stage.address, env),), substitute(value, env)
        )
        count = self.columns.extent
        inside: list[Expr] = []
        if self.rows.overruns:
            inside.append(at < self.rows.extent)
        if self.columns.overruns and count % VECTOR:
            stmt = loop(e, VECTOR, If(first + e < count, (stmt,)), kind="unroll")
        else:
            if self.columns.overruns:
                inside.append(first < count)
            stmt = loop(e, VECTOR, stmt, kind="vector")
        return If(all_of(inside), (stmt,)) if inside else stmt

    def add_up(self, sums: Buffer, rank: Expr, splits: int, thread: Expr, threads: int) -> Stmt:
        """The share of a block in the results of its cluster of `splits`, in vectors.

        total[e] = sums[0, row, column + e] + sums[1, row, column + e] + ...
        """
        n, e = Var("n"), Var("e")
        wide = self.columns.size // VECTOR
        vectors = self.rows.size * wide
        share = -(-vectors // splits)
        within = n * threads + thread
        number = Var("number")
        row, column = number // wide, number % wide * VECTOR
        total = Buffer("total", (VECTOR,), self.reduce.dtype, scope="register")
        value: Expr = sums[0, row, column + e]
        for other in range(1, splits):
            value = value + sums[other, row, column + e]
        added = loop(e, VECTOR, Store(total, (e,), value), kind="vector")
        stored = self.store(row, column, lambda at: Read(total, (at,)))
        made: Stmt = Allocate(total, (added, stored))
        inside: list[Expr] = []
        if share % threads:
            inside.append(within < share)
        if vectors % splits:
            inside.append(number < vectors)
        if inside:
            made = If(all_of(inside), (made,))
        numbered = Let(number, rank * share + within, (made,))
        return loop(n, -(-share // threads), numbered, kind="unroll")
