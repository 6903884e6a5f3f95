"""The end of a tile: sums of all blocks added up and made results by the rest of the stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from whet.ir.affine import substitute
from whet.ir.expr import Expr, Read, Var, all_of
from whet.ir.program import Allocate, Buffer, If, Let, Stmt, Store
from whet.schedule.families.gpu_contraction.match import VECTOR, GpuContraction, Tiling
from whet.schedule.program.access import map_expr
from whet.schedule.program.loops import loop, split_index


@dataclass(frozen=True, eq=False)
class Finish:
    """The results of a block."""

    form: GpuContraction
    t: Tiling
    first_row: Expr
    first_column: Expr
    outer: Mapping[Expr, Expr]

    def store(self, row: Expr, column: Expr, total: Callable[[Expr], Expr]) -> Stmt:
        """A vector of results, of which `total` says the sums by their place in it.

        They begin at a row and a column of the tile; what lies outside is left out.
        """
        c, e = self.form.contraction, Var("e")
        at, first = self.first_row + row, self.first_column + column
        env: dict[Expr, Expr] = {
            **self.outer,
            **split_index(at, c.m_axes),
            c.vector: first + e,
        }
        value = map_expr(c.stage.body, lambda x: total(e) if x is c.reduce else None)
        stmt: Stmt = Store(
            c.stage.target, (substitute(c.stage.address, env),), substitute(value, env)
        )
        columns = self.form.columns(self.t)
        inside: list[Expr] = []
        if self.form.rows(self.t).overruns:
            inside.append(at < c.rows)
        if columns.overruns and c.columns % VECTOR:
            stmt = loop(e, VECTOR, If(first + e < c.columns, (stmt,)), kind="unroll")
        else:
            if columns.overruns:
                inside.append(first < c.columns)
            stmt = loop(e, VECTOR, stmt, kind="vector")
        return If(all_of(inside), (stmt,)) if inside else stmt

    def add_up(self, sums: Buffer, rank: Expr, thread: Expr, threads: int) -> Stmt:
        """The share of a block in the results of its cluster, in vectors.

        total[e] = sums[0, row, column + e] + sums[1, row, column + e] + ...
        """
        t, n, e = self.t, Var("n"), Var("e")
        wide = t.bn // VECTOR
        vectors = t.bm * wide
        share = -(-vectors // t.splits)
        within = n * threads + thread
        number = Var("number")
        row, column = number // wide, number % wide * VECTOR
        total = Buffer("total", (VECTOR,), self.form.dtype, scope="register")
        value: Expr = sums[0, row, column + e]
        for other in range(1, t.splits):
            value = value + sums[other, row, column + e]
        added = loop(e, VECTOR, Store(total, (e,), value), kind="vector")
        stored = self.store(row, column, lambda at: Read(total, (at,)))
        made: Stmt = Allocate(total, (added, stored))
        inside: list[Expr] = []
        if share % threads:
            inside.append(within < share)
        if vectors % t.splits:
            inside.append(number < vectors)
        if inside:
            made = If(all_of(inside), (made,))
        numbered = Let(number, rank * share + within, (made,))
        return loop(n, -(-share // threads), numbered, kind="unroll")
