"""A contraction with given tile sizes as the program of a GPU (see `match` for its shape).

copy the first stages of constant operands; await inputs; copy those of the others
for step in steps of the depth:
  wait for the oldest stage; barrier
  copy the stage that comes stages - 1 later, into the slot that was used last
  multiply
finish

Tensor cores multiply group by group, each from 16 or 32 bytes of a row:

  copy all of the stage; for group: load; multiply
  ->
  for group: load; copy a part of the stage; multiply

so that warps need not wait until all their copies are taken before they load what they multiply.
"""

from __future__ import annotations

from dataclasses import replace

from whet.ir.expr import Expr, Var, as_expr, call, equal
from whet.ir.program import Allocate, Block, Buffer, If, Let, Program, Stmt
from whet.ir.threads import (
    WARP,
    Arrive,
    AwaitArrivals,
    AwaitInputs,
    Barrier,
    BarrierScope,
    Commit,
    LaunchNext,
    Wait,
)
from whet.schedule.families.gpu_contraction.ffma import ThreadTiles
from whet.schedule.families.gpu_contraction.finish import (
    AHEAD,
    BEHIND,
    SUMS_AND_HELD,
    Finish,
    Held,
    add_up,
    shared_vectors,
)
from whet.schedule.families.gpu_contraction.loader import Loader, Share
from whet.schedule.families.gpu_contraction.match import VECTOR, GpuContraction, Span, Tiling
from whet.schedule.families.gpu_contraction.mma import WarpTiles
from whet.schedule.families.gpu_contraction.operand import Operand, left_operand, right_operand
from whet.schedule.families.gpu_contraction.place import place_of
from whet.schedule.families.gpu_contraction.shared import left_shape, right_shape, sums_shape
from whet.schedule.families.gpu_contraction.tile import Factors, Tile
from whet.schedule.families.gpu_contraction.vectors import Vectors
from whet.schedule.families.gpu_contraction.windows import LEAST_ROWS, window_of
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index
from whet.schedule.program.triggers import AT_END, AT_START


def lower_gpu_contraction(form: GpuContraction, t: Tiling, name: str) -> Kernel:
    """The kernel of the contraction with the given tile sizes."""
    return _Lowering(form, t).kernel(name)


class _Lowering:
    """The nest, with the positions that its parts share."""

    def __init__(self, form: GpuContraction, t: Tiling) -> None:
        self.form, self.t = form, t
        self.block, self.warp, self.lane = Var("block"), Var("warp"), Var("lane")
        self.cluster = Var("rank")
        self.rank: Expr = self.cluster if t.splits > 1 else as_expr(0)
        self.threads = form.threads(t)
        self.thread = Var("thread")
        self.steps = form.steps(t)
        rows, columns = form.rows(t), form.columns(t)
        self.blocks = form.contraction.batch * rows.tiles * columns.tiles
        self.first_row = rows.start(self.block // columns.tiles % rows.tiles)
        self.first_column = columns.start(self.block % columns.tiles)
        self.outer = split_index(self.block // (columns.tiles * rows.tiles), form.contraction.outer)
        self.a_ring = Buffer("ring_a", left_shape(form, t), form.a.dtype, scope="shared")
        self.b_ring = Buffer("ring_b", right_shape(form, t), form.b.dtype, scope="shared")
        self.sums = Buffer("sums", sums_shape(form, t), form.dtype, scope="shared")
        leaf = WarpTiles if form.leaf.is_matrix else ThreadTiles
        constant = (form.a_is_constant, form.b_is_constant)
        factors = Factors(form.leaf, form.a.dtype, form.b.dtype, form.dtype, constant)
        self.leaf = leaf(factors, t, self.warp, self.lane)
        many = form.leaf.is_matrix and t.bm >= LEAST_ROWS
        place = place_of(form.a, form.task) if many else None
        axes = form.contraction.m_axes
        self.window = None if place is None else window_of(place, axes, form.k_axes)

    def tile(self, number: Expr) -> Expr:
        """The tile of the depth that is multiplied as that number."""
        if self.window is None:
            return number
        tiles = self.steps * self.t.splits
        return self.window.taps_first(number, self.form.k_axes, self.t.bk, tiles)

    @property
    def shares_sums(self) -> bool:
        """Whether sums go through shared memory before they are finished."""
        return self.t.splits > 1 or self.form.leaf.is_matrix

    def kernel(self, name: str) -> Kernel:
        left, right = left_operand(self.form, self.t), right_operand(self.form, self.t)
        loads = (
            self.loader(left, self.a_ring, self.form.rows(self.t), self.first_row, True,
                        near=self.window is not None),
            self.loader(right, self.b_ring, self.form.columns(self.t), self.first_column,
                        self.form.leaf.is_matrix),
        )  # fmt: skip
        nest = self.nest(self.body(loads))
        known = dict(operand.packed for operand in (left, right) if operand.packed)
        inputs, arguments = arguments_of(self.form.task, (nest,), known)
        target = self.form.contraction.stage.target
        program = Program(name, inputs, (target,), (nest,))
        return Kernel(program, arguments, self.form.task.outputs)

    def loader(
        self,
        operand: Operand,
        ring: Buffer,
        rows: Span,
        first: Expr,
        depth_last: bool,
        *,
        near: bool = False,
    ) -> Loader:
        tiles = self.steps * self.t.splits
        return Loader(
            operand, self.form.task, ring, depth_last, rows, first, self.t.bk, tiles,
            self.outer, self.thread, self.threads, near,
        )  # fmt: skip

    def nest(self, body: Block) -> Stmt:
        """The loops around the code of a thread."""
        lanes = loop(self.lane, WARP, *body, kind="lane")
        warps = loop(self.warp, self.threads // WARP, lanes, kind="warp")
        inner: Stmt = Allocate(self.a_ring, (Allocate(self.b_ring, (warps,)),))
        if self.t.splits > 1:
            inner = loop(self.cluster, self.t.splits, inner, kind="cluster")
        if self.shares_sums:
            inner = Allocate(self.sums, (inner,))
        return loop(self.block, self.blocks, inner, kind="grid")

    def body(self, loads: tuple[Loader, ...]) -> Block:
        t = self.t
        constant = [x for x in loads if x.operand.is_constant]
        others = [x for x in loads if not x.operand.is_constant]
        ahead, s = t.stages - 1, Var("s")
        first = self.rank * self.steps
        end, v = self.end(), self.vectors
        free = SUMS_AND_HELD - VECTOR * v.count if self.shares_sums else BEHIND
        held = end.held(v, self.form.task, free, AHEAD[self.form.leaf.is_matrix])
        before: list[Stmt] = [LaunchNext()] if t.trigger == AT_START else []
        if constant:
            early = [x.load(self.tile(first + s), s) for x in constant]
            before.append(loop(s, ahead, *early, kind="unroll"))
        before += (*held.early, AwaitInputs())
        late = [x.load(self.tile(first + s), s) for x in others]
        before += (loop(s, ahead, *late, Commit(), kind="unroll"), *held.ahead)
        rounds = self.rounds(loads, first)
        after = (LaunchNext(),) if t.trigger == AT_END else ()
        made: Block = (*before, *self.leaf.zero(), rounds, *after, *self.finish(end, v, held))
        made = held.around(made)
        for registers in self.leaf.registers:
            made = (Allocate(registers, made),)
        return (Let(self.thread, self.warp * WARP + self.lane, made),)

    def rounds(self, loads: tuple[Loader, ...], first: Expr) -> Stmt:
        """All steps of a block, the first of which has the given tile of the depth."""
        step, ahead, slots = Var("step"), self.t.stages - 1, self.form.slots(self.t)
        later, slot, leaf = step + ahead, (step + ahead) % slots, self.leaf
        a, b = Tile(self.a_ring, step % slots), Tile(self.b_ring, step % slots)
        beside = [x for x in loads if x.run] if self.copies_beside else []
        beside.sort(key=lambda x: not x.operand.is_constant)
        again = [x.load(self.tile(first + later), slot) for x in loads if x not in beside]
        refill = (If(later < self.steps, tuple(again)),) if again and self.steps > ahead else ()
        # A copy that does not take place has an address, too.
        last, takes_place = (
            self.tile(first + call("min", later, self.steps - 1)),
            later < self.steps,
        )

        def part(group: Expr, groups: int) -> Block:
            """Constants come from memory, which takes longest, and are on their way first."""
            every, some = Share(as_expr(0), 1, takes_place), Share(group, groups, takes_place)
            return tuple(
                If(equal(group, 0), (x.load(last, slot, every),)) if x.operand.is_constant
                else x.load(last, slot, some)
                for x in beside
            )  # fmt: skip

        if isinstance(leaf, WarpTiles):
            products = leaf.multiply(a, b, part)
        else:
            products = leaf.multiply(a, replace(b, turned=True))
        arrived = (Wait(self.t.stages - 2), Barrier("block"))
        if beside:
            return loop(step, self.steps, *arrived, *refill, *products, Commit())
        return loop(step, self.steps, *arrived, *refill, Commit(), *products)

    @property
    def copies_beside(self) -> bool:
        """Whether copies go on beside products: not where the next step waits for them, nor where
        most steps have none to make."""
        ahead = self.t.stages - 1
        return self.form.leaf.is_matrix and ahead > 1 and self.steps >= 2 * ahead

    # ----------------------------------------------------------------------------------- results
    @property
    def vectors(self) -> Vectors:
        """The vectors of results of a thread."""
        if isinstance(self.leaf, ThreadTiles) and not self.shares_sums:
            return self.leaf.vectors
        t = self.t
        return shared_vectors(t.bm, t.bn, self.rank, t.splits, self.thread, self.threads)

    def end(self) -> Finish:
        c = self.form.contraction
        return Finish(
            c.stage, c.reduce, c.m_axes, c.vector, self.form.rows(self.t),
            self.form.columns(self.t), self.first_row, self.first_column, self.outer,
        )  # fmt: skip

    def finish(self, end: Finish, v: Vectors, held: Held) -> Block:
        """The sums made results, by the threads that have them or after all blocks have added."""
        if isinstance(self.leaf, ThreadTiles) and not self.shares_sums:
            return (*held.behind, end.store(v, self.leaf.total, held))
        splits = self.t.splits
        scope: BarrierScope = "cluster" if splits > 1 else "block"
        total, added, sums = add_up(v, self.sums, splits)
        # The stages of the ring are read and filled no more: sums may take their place.
        shared: Block = (
            *held.behind, Wait(0), Barrier("block"), *self.leaf.share(Tile(self.sums, self.rank)),
            Barrier(scope),
        )  # fmt: skip
        stored = end.store(v, sums, held)
        rest = (added, Arrive(), stored, AwaitArrivals()) if splits > 1 else (added, stored)
        return (*shared, Allocate(total, rest))
