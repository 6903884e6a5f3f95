"""Attention with given tile sizes as the program of a GPU (see `match` for its shape).

await inputs; copy the queries; copy the first tiles of keys and values
load what the stages of a row read, such as masks
for step in tiles of keys:
  wait for the oldest tile; barrier
  copy the tile that comes stages - 1 later
  scores[:, tile] = queries * keys
barrier
the stages of a row, by the threads that share it: weights
for step in tiles of values:
  wait for the oldest tile; barrier
  copy the tile that comes stages - 1 later
  results += weights[:, tile] * values, a part of the tile by each of some groups of warps
finish
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from whet.core.dtypes import DType
from whet.core.types import Shape
from whet.ir.expr import Axis, Expr, Var, as_expr
from whet.ir.program import Allocate, Block, Buffer, Let, Program, Stmt
from whet.ir.threads import WARP, AwaitInputs, Barrier, LaunchNext
from whet.schedule.families.gpu_attention.dots import DotTiles
from whet.schedule.families.gpu_attention.match import AttentionTiling, GpuAttention
from whet.schedule.families.gpu_attention.rows import BlockRows
from whet.schedule.families.gpu_attention.shared import (
    key_shape,
    query_shape,
    row_shape,
    sums_shape,
    value_shape,
)
from whet.schedule.families.gpu_attention.stream import Stream
from whet.schedule.families.gpu_contraction.ffma import ThreadTiles
from whet.schedule.families.gpu_contraction.finish import (
    BEHIND,
    SUMS_AND_HELD,
    Finish,
    Total,
    add_up,
    shared_vectors,
)
from whet.schedule.families.gpu_contraction.loader import Loader
from whet.schedule.families.gpu_contraction.match import VECTOR, Span
from whet.schedule.families.gpu_contraction.mma import WarpTiles
from whet.schedule.families.gpu_contraction.operand import Operand
from whet.schedule.families.gpu_contraction.tile import Factors, Tile
from whet.schedule.families.gpu_contraction.vectors import Vectors
from whet.schedule.program.access import address_form, memory_of
from whet.schedule.program.flat import FlatStage
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index
from whet.schedule.program.triggers import AT_END, AT_START


def lower_gpu_attention(form: GpuAttention, t: AttentionTiling, name: str) -> Kernel:
    """The kernel of the task with the given tile sizes."""
    return AttentionLowering(form, t).kernel(name)


class AttentionLowering:
    """The nest, with the positions that its parts share."""

    sums_name: ClassVar[str] = "acc"
    """The name of the results' sums in registers."""

    def __init__(self, form: GpuAttention, t: AttentionTiling) -> None:
        self.form, self.t = form, t
        self.block, self.warp, self.lane = Var("block"), Var("warp"), Var("lane")
        self.thread = Var("thread")
        span = form.row_span(t)
        self.blocks = form.batch * span.tiles
        self.first_row = span.start(self.block % span.tiles)
        positions = split_index(self.block // span.tiles, form.first.outer)
        self.outer = [positions[axis] for axis in form.first.outer]
        self.threads = form.threads(t)
        scores, sums = form.score_type, form.second.reduce.dtype
        weights = form.weight.dtype
        self.queries = shared_buffer("queries", query_shape(form, t), form.queries.dtype)
        self.keys = shared_buffer("keys", key_shape(form, t), form.keys.dtype)
        self.values = shared_buffer("values", value_shape(form, t), form.values.dtype)
        self.scores = self.row_buffer("scores", scores)
        self.weights = self.scores
        if not form.in_place:
            self.weights = self.row_buffer("weights", weights)
        self.sums = shared_buffer("sums", sums_shape(form, t), sums)
        of_scores = Factors(form.leaf, form.queries.dtype, form.keys.dtype, scores)
        of_results = Factors(form.leaf, weights, form.values.dtype, sums, (form.leaf.rounds, False))
        by_threads = ThreadTiles if form.turned_keys else DotTiles
        first = WarpTiles if form.leaf.is_matrix else by_threads
        second = WarpTiles if form.leaf.is_matrix else ThreadTiles
        self.first = first(of_scores, form.score_tiling(t), self.warp, self.lane)
        part: Expr = as_expr(0)
        within: Expr = self.warp
        if t.parts > 1:
            each = self.threads // WARP // t.parts
            part, within = self.warp // each, self.warp % each
        self.part = part
        self.second = second(of_results, form.result_tiling(t), within, self.lane, self.sums_name)

    def row_buffer(self, name: str, dtype: DType) -> Buffer:
        """A number for every key of every row."""
        return shared_buffer(name, row_shape(self.form, self.t, dtype), dtype)

    def kernel(self, name: str) -> Kernel:
        nest = self.nest()
        inputs, arguments = arguments_of(self.form.task, (nest,), {})
        target = memory_of(self.form.output, self.form.task)
        program = Program(name, inputs, (target,), (nest,))
        return Kernel(program, arguments, self.form.task.outputs)

    def nest(self) -> Stmt:
        rows = BlockRows(
            self.form, self.t, self.scores, self.weights, self.first_row, self.outer, self.thread
        )
        stream = self.stream()
        body = (
            *self.begin(), *stream.before(), *rows.behind((self.score_rounds(stream),)),
            *self.results(stream),
        )  # fmt: skip
        return self.around(body)

    def begin(self) -> Block:
        """What stands in front of the first tiles."""
        before: Block = (LaunchNext(),) if self.t.trigger == AT_START else ()
        return (*before, AwaitInputs(), self.load_queries())

    def around(self, body: Block, *more: Buffer) -> Stmt:
        """The loops around the code of a thread, and the shared memory of a block."""
        named = Let(self.thread, self.warp * WARP + self.lane, body)
        lanes = loop(self.lane, WARP, named, kind="lane")
        warps = loop(self.warp, self.threads // WARP, lanes, kind="warp")
        shared = [self.queries, self.keys, self.values, self.scores]
        if not self.form.in_place:
            shared.append(self.weights)
        if self.form.leaf.is_matrix:
            shared.append(self.sums)
        shared += more
        return loop(self.block, self.blocks, *allocated(shared, (warps,)), kind="grid")

    def at(self, axes: Sequence[Axis]) -> dict[Expr, Expr]:
        """The position of the block on outer axes."""
        return dict(zip(axes, self.outer, strict=True))

    # ----------------------------------------------------------------------------------- copies
    def load_queries(self) -> Stmt:
        first, depth = self.form.first, self.form.padded_depth
        operand = Operand(self.form.queries, (first.row,), (first.depth,))
        rows = self.form.row_span(self.t)
        loader = self.loader(operand, self.queries, rows, depth, self.at(first.outer))
        return replace(loader, first_row=self.first_row).load(as_expr(0), as_expr(0))

    def stream(self) -> Stream:
        form, t = self.form, self.t
        first, second, steps = form.first, form.second, form.steps(t)
        keys = self.loader(
            Operand(form.keys, (first.column,), (first.depth,)), self.keys, form.key_span(t),
            form.padded_depth, self.at(first.outer),
        )  # fmt: skip
        values = self.loader(
            Operand(form.values, (second.column,), (second.depth,)), self.values,
            form.result_span(t), t.bn, self.at(second.outer),
        )  # fmt: skip
        keys = replace(keys, depth_last=not form.turned_keys)
        values = replace(values, depth_last=False, tiles=steps)
        return Stream(keys, values, t.bn, steps, form.slots(t), t.stages)

    def loader(
        self, operand: Operand, ring: Buffer, rows: Span, bk: int, outer: dict[Expr, Expr]
    ) -> Loader:
        """Rows from the first one on with all of their depth, which is `bk` at most."""
        return Loader(
            operand, self.form.task, ring, True, rows, as_expr(0), bk, 1, outer,
            self.thread, self.threads,
        )  # fmt: skip

    # --------------------------------------------------------------------------------- products
    def score_rounds(self, stream: Stream) -> Stmt:
        step = Var("step")
        keys = Tile(self.keys, step % stream.slots, turned=self.form.turned_keys)
        made: Block = (
            *self.first.zero(),
            *self.first.multiply(Tile(self.queries, as_expr(0)), keys),
            *self.first.share(Tile(self.scores, as_expr(0), step * self.t.bn)),
        )
        made = allocated(self.first.registers, made)
        return loop(step, stream.steps, *stream.for_scores(step), *made)

    def results(self, stream: Stream) -> Block:
        step = Var("step")
        # Warps that share results have keys of their own in every stage.
        own = self.part * (self.t.bn // self.t.parts)
        weights = Tile(self.weights, as_expr(0), step * self.t.bn + own)
        values = Tile(self.values, step % stream.slots, own, turned=True)
        rounds = loop(
            step, stream.steps, *stream.for_results(step), *self.second.multiply(weights, values)
        )
        after = (LaunchNext(),) if self.t.trigger == AT_END else ()
        made: Block = (*self.second.zero(), rounds, *after, *self.finish())
        return allocated(self.second.registers, made)

    def finish(self) -> Block:
        """The sums made results, by the threads that have them or in vectors along the columns."""
        form, second = self.form, self.form.second
        address = address_form(form.task.buffers[form.output], second.stage.axes).expr()
        target = memory_of(form.output, form.task)
        finish = Finish(
            FlatStage(second.stage.axes, target, address, second.body), second.reduce,
            (second.row,), second.column, form.row_span(self.t), form.result_span(self.t),
            self.first_row, as_expr(0), self.at(second.outer),
        )  # fmt: skip
        if isinstance(self.second, ThreadTiles):
            v = self.second.vectors
            held = finish.held(v, form.task, BEHIND)
            total = self.finished(v, self.second.total)
            return held.around((*held.behind, finish.store(v, total, held)))
        # Sums have a place of their own, so that no warp waits for others that still multiply.
        columns = form.result_span(self.t).size
        v = shared_vectors(self.t.bm, columns, as_expr(0), 1, self.thread, self.threads)
        held = finish.held(v, form.task, SUMS_AND_HELD - VECTOR * v.count)
        registers, added, sums = add_up(v, self.sums, self.t.parts)
        made: Block = (
            *held.behind, *self.second.share(Tile(self.sums, self.part)), Barrier("block"),
            Allocate(registers, (added, finish.store(v, self.finished(v, sums), held))),
        )  # fmt: skip
        return held.around(made)

    def finished(self, v: Vectors, total: Total) -> Total:
        """The sums of vectors as the end of the task sees them."""
        return total


def shared_buffer(name: str, shape: Shape, dtype: DType) -> Buffer:
    return Buffer(name, shape, dtype, scope="shared")


def allocated(buffers: Sequence[Buffer], body: Block) -> Block:
    for buffer in reversed(buffers):
        body = (Allocate(buffer, body),)
    return body
