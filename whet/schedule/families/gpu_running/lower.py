"""Attention with a running maximum as the program of a GPU (see `match` for what it computes).

await inputs; copy the queries; copy the first tiles of keys and of values
for step in tiles of keys:
  wait for the tile of keys; barrier; copy the one that comes stages - 1 later
  scores = queries * keys
  barrier
  weights and factors, by the threads that share a row
  wait for the tile of values; barrier; copy the one that comes stages - 1 later
  results = results * factors + weights * values
finish: results * factors of complete rows
"""

from __future__ import annotations

from whet.core.dtypes import DType, f32
from whet.ir.expr import Expr, Read, Var, as_expr, call
from whet.ir.program import Block, Buffer, If, Stmt
from whet.ir.threads import Barrier, Commit, LaunchNext, Wait
from whet.schedule.families.gpu_attention.lower import (
    AttentionLowering,
    allocated,
    shared_buffer,
)
from whet.schedule.families.gpu_attention.match import AttentionTiling
from whet.schedule.families.gpu_contraction.finish import Total
from whet.schedule.families.gpu_contraction.shared import PAD_BYTES
from whet.schedule.families.gpu_contraction.tile import Tile
from whet.schedule.families.gpu_contraction.vectors import Vectors
from whet.schedule.families.gpu_running.match import RunningAttention
from whet.schedule.families.gpu_running.rows import RunningRows
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import loop
from whet.schedule.program.triggers import AT_END


def lower_running_attention(form: RunningAttention, t: AttentionTiling, name: str) -> Kernel:
    """The kernel of the task with the given tile sizes."""
    return _Lowering(form, t).kernel(name)


class _Lowering(AttentionLowering):
    """The nest of attention, one tile of keys and values behind the other."""

    sums_name = "results"  # they are there while scores are summed up

    def __init__(self, form: RunningAttention, t: AttentionTiling) -> None:
        super().__init__(form.attention, t)
        self.tiles = self.stream()
        self.factors = shared_buffer("factors", (t.bm,), f32)
        self.rows = RunningRows(
            form, t, self.scores, self.weights, self.factors, self.thread, self.row_of
        )

    def row_buffer(self, name: str, dtype: DType) -> Buffer:
        """A number for every key of a tile, of every row."""
        return shared_buffer(name, (1, self.t.bm, self.t.bn + PAD_BYTES // dtype.itemsize), dtype)

    def row_of(self, slot: Expr) -> dict[Expr, Expr]:
        """The position of a row of the block; of one outside that of the last one."""
        row = self.first_row + slot
        if self.form.row_span(self.t).overruns:
            row = call("min", row, self.form.count - 1)
        return dict(zip(self.form.rows.rows, (*self.outer, row), strict=True))

    def nest(self) -> Stmt:
        body: Block = (*self.begin(), *self.first_tiles(), *self.rows.begin(), *self.all_tiles())
        return self.around(allocated(self.rows.kept, body), self.factors)

    # ----------------------------------------------------------------------------------- copies
    @property
    def ahead(self) -> int:
        """Tiles of keys, and of values, that are under way while one is used."""
        return self.t.stages - 1

    def first_tiles(self) -> Block:
        """A group of copies for every tile, keys and values in turns."""
        found: list[Stmt] = []
        for number in range(self.ahead):
            for load in (self.tiles.key, self.tiles.value):
                if number < self.tiles.steps:
                    found.append(load(as_expr(number)))
                found.append(Commit())
        return tuple(found)

    def next_tile(self, step: Expr, *, keys: bool) -> Block:
        """The wait for the oldest tile, and the copy of another one into the place of the last."""
        tiles, later = self.tiles, step + self.ahead
        refill: Block = ()
        if self.ahead < tiles.steps:
            load = tiles.key if keys else tiles.value
            refill = (If(later < tiles.steps, (load(later),)),)
        return (Wait(2 * self.ahead - 1), Barrier("block"), *refill, Commit())

    # -------------------------------------------------------------------------------- the tiles
    def all_tiles(self) -> Block:
        step = Var("step")
        slot = step % self.tiles.slots
        keys = Tile(self.keys, slot, turned=self.form.turned_keys)
        scores: Block = (
            *self.first.zero(),
            *self.first.multiply(Tile(self.queries, as_expr(0)), keys),
            *self.first.share(Tile(self.scores, as_expr(0))),
        )
        rounds = loop(
            step, self.tiles.steps,
            *self.next_tile(step, keys=True),
            *allocated(self.first.registers, scores),
            Barrier("block"),
            *allocated(self.rows.registers, self.rows.tile(step)),
            *self.next_tile(step, keys=False),
            self.second.scaled(lambda row: Read(self.factors, (row,))),
            *self.second.multiply(
                Tile(self.weights, as_expr(0)), Tile(self.values, slot, turned=True)
            ),
        )  # fmt: skip
        after = (LaunchNext(),) if self.t.trigger == AT_END else ()
        # Factors of the last tile are in use until all threads are here.
        ended: Block = (Barrier("block"), *self.rows.end(), Barrier("block"))
        made: Block = (*self.second.zero(), rounds, *after, *ended, *self.finish())
        return allocated(self.second.registers, made)

    def finished(self, v: Vectors, total: Total) -> Total:
        factor = Read(self.factors, (v.row,))
        return lambda place: total(place) * factor
