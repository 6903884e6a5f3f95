"""The stages between the products: the threads of a row take it from its sums to its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.types import Array
from whet.ir.expr import Expr, Read, Var, as_expr, call, const
from whet.ir.program import Allocate, Block, Buffer, If, Let, Stmt, Store
from whet.ir.threads import WARP, Barrier
from whet.schedule.families.gpu_attention.match import AttentionTiling, GpuAttention
from whet.schedule.families.gpu_contraction.match import VECTOR
from whet.schedule.families.gpu_rows.loads import (
    KEPT_LIMIT,
    Loads,
    elements_of_thread,
    moves,
)
from whet.schedule.families.gpu_rows.writer import RowThreads, RowWriter
from whet.schedule.program.loops import loop

AHEAD = KEPT_LIMIT
"""Numbers that a thread keeps at most while scores are computed."""


def row_lanes(threads: Array | int, rows: Array | int) -> Array:
    """Threads of a row where so many share all rows of a block: a power of two in one warp."""
    each = np.maximum(np.asarray(threads) // rows, 1)
    return np.minimum(WARP, 1 << np.log2(each).astype(np.int64))


def row_width(length: int) -> int:
    """Elements that a thread takes at once."""
    return next(n for n in (VECTOR, VECTOR // 2, 1) if length % n == 0)


def row_loads(form: GpuAttention, lanes: int) -> Loads:
    """What the threads of a row load before scores are computed, as far as registers hold it."""
    share = elements_of_thread(form.length, lanes, row_width(form.length))
    if share > KEPT_LIMIT:
        return Loads((), ())
    chosen, left = list[Read](), AHEAD
    # Those that several stages read first: else they would be read again and again.
    for read in sorted(form.rows.reads, key=lambda e: e not in form.rows.shared):
        needed = share if moves(form.rows, read) else 1
        if read != form.total and needed <= left:
            chosen.append(read)
            left -= needed
    return Loads((), tuple(chosen))


def registers_ahead(form: GpuAttention, lanes: int) -> int:
    """The registers that hold it."""
    share = elements_of_thread(form.length, lanes, row_width(form.length))
    return sum(share if moves(form.rows, e) else 1 for e in row_loads(form, lanes).first)


@dataclass(frozen=True, eq=False)
class BlockRows:
    """The rows of a block: sums of scores and weights, in shared memory."""

    form: GpuAttention
    t: AttentionTiling
    scores: Buffer
    weights: Buffer
    first_row: Expr
    outer: Sequence[Expr]
    thread: Expr

    def behind(self, scores: Block) -> Block:
        """The statements that compute scores, and those of the rows; a row is one warp's, which
        needs no more shared memory.

        What rows read, such as masks, is on its way while scores are computed.
        """
        form, slot, part, zero = self.form, Var("slot"), Var("part"), as_expr(0)
        threads = form.threads(self.t)
        lanes = int(row_lanes(threads, self.t.bm))
        at_once = threads // lanes
        row = self.first_row + slot
        if form.row_span(self.t).overruns:
            row = call("min", row, form.count - 1)  # nobody looks at rows outside
        positions: dict[Expr, Expr] = dict(zip(form.rows.rows, (*self.outer, row), strict=True))
        team = RowThreads(lanes, row_width(form.length), at_once, slot, part, positions)
        (key,) = form.rows.elements
        writer = RowWriter(
            form.rows, team,
            places={form.weight: Read(self.weights, (zero, slot, key))},
            known={form.total: Read(self.scores, (zero, slot, key))},
            loads=row_loads(form, lanes),
        )  # fmt: skip
        parts: list[Block] = [
            tuple(writer.first()), (*writer.between(), *self._behind(slot, part, lanes))
        ]  # fmt: skip
        assert not writer.shared
        if at_once > self.t.bm:
            parts = [(If(slot < self.t.bm, code),) if code else () for code in parts]
        loads, stages = parts
        body: Block = (*loads, *scores, Barrier("block"), *stages)
        for registers in reversed(writer.registers):
            body = (Allocate(registers, body),)
        return (Let(slot, self.thread // lanes, (Let(part, self.thread % lanes, body),)),)

    def _behind(self, slot: Expr, part: Expr, lanes: int) -> Block:
        """Weights of zero behind the last key, up to the end of its tile."""
        length, end, n = self.form.length, self.form.steps(self.t) * self.t.bn, Var("n")
        if length == end:
            return ()
        at = n * lanes + part + length
        zero = Store(self.weights, (as_expr(0), slot, at), const(0, self.weights.dtype))
        inside: Stmt = zero if (end - length) % lanes == 0 else If(at < end, (zero,))
        return (loop(n, -(-(end - length) // lanes), inside, kind="unroll"),)
