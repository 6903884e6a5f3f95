"""The kernel of products whose rows go through a chain of row stages (see `attention`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from whet.ir.affine import free_symbols, substitute
from whet.ir.expr import Axis, Expr, Read, Var, as_expr
from whet.ir.program import Allocate, Buffer, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor
from whet.schedule.cost.lanes import longest_sum
from whet.schedule.families.attention.match import (
    Attention,
    AttentionTiling,
    Product,
    rows_together,
)
from whet.schedule.families.attention.row_registers import RegisterRows, RowVectors
from whet.schedule.families.contraction.lower import copy_panel, copy_panels
from whet.schedule.families.rows.lower import RowWriter
from whet.schedule.families.rows.match import RowTiling
from whet.schedule.program.access import address_form, map_expr, memory_of, reads_constants_alone
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of, vectors_along
from whet.schedule.program.register_tile import RegisterTile, next_panel

DEPTH = Var("k")
"""The position along a product's sum."""
PANEL_BYTES = 128 << 10
"""Bytes of a panel that a step copies for itself, at most: a part of the second cache."""


def lower_attention(f: Attention, t: AttentionTiling, name: str) -> Kernel:
    """The kernel of the task with the given tile sizes."""
    return _Lowering(f, t).kernel(name)


class _Lowering:
    def __init__(self, f: Attention, t: AttentionTiling) -> None:
        self.f, self.t = f, t
        rows, p = f.first.row.extent, Var("p")
        self.blocks = -(-rows // t.block)
        self.p, self.batch = p, p // self.blocks
        self.start = start_of(p % self.blocks, t.block, rows)
        self.steps = self.blocks
        for axis in f.first.outer:
            self.steps *= axis.extent
        dtype = f.first.reduce.dtype
        self.left = Buffer("left", (t.block, f.first.depth.extent), dtype)
        self.scores = Buffer("scores", (t.block, f.first.column.extent), dtype)
        self.constants: dict[Buffer, Tensor] = {}
        self.before: list[Stmt] = []
        self.workspace: list[Buffer] = []

    def kernel(self, name: str) -> Kernel:
        f, t = self.f, self.t
        task = f.task
        copies = [] if t.in_place else [self.copy_left()]
        tile = RegisterTile(t.mr, t.nv, t.lanes, by_vector=t.whole > 0 and t.nv > t.mr)
        if t.whole:
            body = [*copies, self.whole_rows(tile)]
        else:
            body = [*copies, self.product(f.first, self.first_left, tile, self.keep)]
            body += self.row_stages()
        if f.second is not None:
            tile = RegisterTile(t.mr, t.nv2, t.lanes2)
            body.append(
                self.product(f.second, lambda row, k: self.scores[row, k], tile, self.finish)
            )
        step = tuple(body)
        if f.second is not None or not t.whole:
            step = (Allocate(self.scores, step),)
        if copies:
            step = (Allocate(self.left, step),)
        nest = (*self.before, loop(self.p, self.steps, *step, kind="parallel"))
        inputs, arguments = arguments_of(task, nest, self.constants)
        (output,) = task.outputs
        outputs = (memory_of(output, task),)
        program = Program(name, inputs, outputs, nest, tuple(self.workspace))
        return Kernel(program, arguments, task.outputs)

    def where(self, g: Product, row: Expr, **positions: Expr) -> dict[Expr, Expr]:
        """The axes of a product at a row of this step's block."""
        env: dict[Expr, Expr] = {**split_index(self.batch, g.outer), g.row: self.start + row}
        if "column" in positions:
            env[g.column] = positions["column"]
        if "depth" in positions:
            env[g.depth] = positions["depth"]
        return env

    def first_left(self, row: Expr, k: Expr) -> Expr:
        """The left factor of the first product, copied or where it lies."""
        g = self.f.first
        if not self.t.in_place:
            return self.left[row, k]
        return substitute(g.a, self.where(g, row, depth=k))

    def copy_left(self) -> Stmt:
        """The rows of the left factor side by side, whatever stood in front of the product."""
        g, r = self.f.first, Var("r")

        def store(k: Expr) -> Stmt:
            return Store(self.left, (r, k), substitute(g.a, self.where(g, r, depth=k)))

        return loop(r, self.t.block, *vectors_along(g.depth.extent, self.t.lanes, store))

    def row_stages(self) -> list[Stmt]:
        """The stages for all rows of the block, as many rows at a time as stay in L1."""
        size = rows_together(self.f, self.t.block)
        group, full = Var("group"), self.t.block // size
        found: list[Stmt] = [loop(group, full, *self.together(group * size, size))]
        if rest := self.t.block % size:
            found += self.together(as_expr(full * size), rest)
        return found

    def together(self, first: Expr, count: int) -> tuple[Stmt, ...]:
        """The stages for some rows of the block, which go through each stage together."""
        f, t, r = self.f, self.t, Var("r")
        at = first + r if count > 1 else first
        row = self.batch * f.first.row.extent + self.start + at
        kept: dict[Tensor, tuple[Buffer, Expr]] = {f.first.stage: (self.scores, at)}
        if f.between is not None:
            kept[f.between] = (self.scores, at)
        several = (r, count) if count > 1 else None
        # Where other rows fill the time, fewer vectors in flight are less to combine.
        tiling = RowTiling(t.lanes, vectors=4 if several is None else 2, rows_per_step=1)
        writer = RowWriter(f.rows, tiling, row, kept, several)
        body: tuple[Stmt, ...] = tuple(s for stage in f.rows.stages for s in writer.stage(stage))
        for buffer in writer.scratch:
            body = (Allocate(buffer, body),)
        return body

    def product(
        self,
        g: Product,
        left: Callable[[Expr, Expr], Expr],
        tile: RegisterTile,
        store: Callable[[Product, Expr, Expr, Expr], Stmt],
    ) -> Stmt:
        """All tiles of the block: panels of b outermost, so that each is used while in L1."""
        panel, io = Var("panel"), Var("io")
        row = start_of(io, tile.mr, self.t.block) + tile.i
        column = start_of(panel, tile.width, g.column.extent) + tile.column
        tiles, panels = -(-self.t.block // tile.mr), -(-g.column.extent // tile.width)
        b, near, copies = self.right(g, tile, panel, column)
        hints = self.hints(g, b, panel, (io, tiles))
        finish = lambda total: store(g, total, row, column)
        body = self.sums(g, left, tile, row, b, finish, hints)
        nest = loop(panel, panels, *copies, loop(io, tiles, body))
        return Allocate(near, (nest,)) if copies else nest

    def whole_rows(self, tile: RegisterTile) -> Stmt:
        """All tiles of the first product, each with whole rows, and the row stages on them."""
        f, g, io = self.f, self.f.first, Var("io")
        vectors = RowVectors(g.column.extent, tile.lanes)
        first = start_of(io, tile.mr, self.t.block)
        row, column = first + tile.i, vectors.column(tile.v, tile.lane)
        scores = Buffer("tile", (tile.mr, tile.nv, tile.lanes), g.reduce.dtype, scope="register")
        b, near, copies = self.right(g, tile, as_expr(0), column)

        def keep(total: Expr) -> Stmt:
            at = (tile.i, tile.v, tile.lane)
            return Store(scores, at, self.value(g, total, row, column))

        kept: dict[Tensor, tuple[Buffer, Expr]] = {}
        if f.between is not None:
            kept[f.between] = (self.scores, row)
        where = self.where(g, row)
        rows = [where[axis] for axis in (*g.outer, g.row)]
        by_row = replace(tile, by_vector=False)
        writer = RegisterRows(f.rows, by_row, vectors, rows, (g.stage, scores), kept)
        body: tuple[Stmt, ...] = (self.sums(g, self.first_left, tile, row, b, keep),)
        body += tuple(writer.stage(stage) for stage in f.rows.stages)
        for buffer in (scores, *writer.scratch):
            body = (Allocate(buffer, body),)
        nest = loop(io, -(-self.t.block // tile.mr), *body)
        return Allocate(near, (*copies, nest)) if copies else nest

    def sums(
        self,
        g: Product,
        left: Callable[[Expr, Expr], Expr],
        tile: RegisterTile,
        row: Expr,
        b: Callable[[Expr], Expr],
        finish: Callable[[Expr], Stmt],
        hints: Sequence[Stmt] = (),
    ) -> Stmt:
        """A tile of a product."""
        terms = longest_sum(g.depth.extent, g.reduce.dtype)
        reduced = [(DEPTH, g.depth.extent)]
        return tile.multiply(left(row, DEPTH), b(DEPTH), reduced, finish, beside=hints, terms=terms)

    def hints(
        self, g: Product, b: Callable[[Expr], Expr], panel: Expr, tiles: tuple[Expr, int]
    ) -> tuple[Stmt, ...]:
        """Prefetches of the next panel of a constant right factor."""
        read = b(DEPTH)
        if not (self.t.prefetch and isinstance(read, Read) and read.tensor in self.constants):
            return ()
        assert isinstance(read.tensor, Buffer)
        return next_panel(read.tensor, read.indices[:-2], [(DEPTH, g.depth.extent)], tiles)

    def right(
        self, g: Product, tile: RegisterTile, panel: Expr, column: Expr
    ) -> tuple[Callable[[Expr], Expr], Buffer, tuple[Stmt, ...]]:
        """The right factor of a tile by depth, room for a panel, and what copies it there."""
        near = Buffer("panel", (g.depth.extent, tile.width), g.b.dtype)
        if reads_constants_alone(g.b, self.f.task):
            stored, outer = self.stored_panels(g, tile), self.where(g, as_expr(0))
            at = (*(outer[x] for x in _moving(g)), panel)
            return (lambda k: Read(stored, (*at, k, tile.column))), near, ()
        if g.b_is_contiguous:
            env = self.where(g, as_expr(0), column=column)
            return (lambda k: substitute(g.b, {**env, g.depth: k})), near, ()
        if self.blocks == 1 and near.type.nbytes <= PANEL_BYTES:
            copied = self.pack_near(g, near, panel, tile)
            return (lambda k: near[k, tile.column]), near, (copied,)
        store = self.pack(g, tile)
        return (lambda k: Read(store, (self.batch, panel, k, tile.column))), near, ()

    def pack_near(self, g: Product, near: Buffer, panel: Expr, tile: RegisterTile) -> Stmt:
        """One panel of b as [k, column within the panel], copied by the step that uses it."""
        k, column = Axis("pk", g.depth.extent), Axis("pc", tile.width)
        env: dict[Expr, Expr] = {
            **split_index(self.batch, g.outer),
            g.depth: k,
            g.column: column_in(g, tile, panel, column),
        }
        return copy_panel(near, (), Compute("panel", (k, column), substitute(g.b, env)), tile.lanes)

    def stored_panels(self, g: Product, tile: RegisterTile) -> Buffer:
        """Constant b as [outer..., panel, k, column within the panel], made once."""
        outer = _moving(g)
        panels = -(-g.column.extent // tile.width)
        shape = (*(x.extent for x in outer), panels, g.depth.extent, tile.width)
        axes = tuple(Axis(f"p{n}", extent) for n, extent in enumerate(shape))
        panel, k, column = axes[-3:]
        env: dict[Expr, Expr] = {
            **dict(zip(outer, axes)),
            g.depth: k,
            g.column: column_in(g, tile, panel, column),
        }
        store = Buffer(f"weights{len(self.constants)}", shape, g.b.dtype)
        self.constants[store] = Compute(store.name, axes, substitute(g.b, env))
        return store

    def pack(self, g: Product, tile: RegisterTile) -> Buffer:
        """b in panels [batch, panel, k, column within the panel], copied before the steps."""
        batch = Axis("pb", self.steps // self.blocks)
        panel = Axis("pp", -(-g.column.extent // tile.width))
        k, column = Axis("pk", g.depth.extent), Axis("pc", tile.width)
        env: dict[Expr, Expr] = {
            **split_index(batch, g.outer),
            g.depth: k,
            g.column: column_in(g, tile, panel, column),
        }
        packed = Compute("panels", (batch, panel, k, column), substitute(g.b, env))
        store = Buffer(f"panels{len(self.workspace)}", packed.shape, packed.dtype)
        self.before.append(copy_panels(store, packed, tile.lanes))
        self.workspace.append(store)
        return store

    def keep(self, g: Product, total: Expr, row: Expr, column: Expr) -> Stmt:
        """The epilogue of the first product, into the block's scores."""
        return Store(self.scores, (row, column), self.value(g, total, row, column))

    def finish(self, g: Product, total: Expr, row: Expr, column: Expr) -> Stmt:
        """The epilogue of the second product, into the output."""
        output = self.f.task.buffers[g.stage]
        env = self.where(g, row, column=column)
        address = substitute(address_form(output, g.stage.axes).expr(), env)
        return Store(memory_of(g.stage, self.f.task), (address,), self.value(g, total, row, column))

    def value(self, g: Product, total: Expr, row: Expr, column: Expr) -> Expr:
        finished = map_expr(g.body, lambda e: total if e is g.reduce else None)
        return substitute(finished, self.where(g, row, column=column))


def _moving(g: Product) -> tuple[Axis, ...]:
    """The outer axes that the right factor depends on."""
    return tuple(x for x in g.outer if x in free_symbols(g.b))


def column_in(g: Product, tile: RegisterTile, panel: Expr, within: Expr) -> Expr:
    """The column at a position within a panel; one that is wider than a row has its vectors."""
    if tile.width > g.column.extent:
        vectors = RowVectors(g.column.extent, tile.lanes)
        return vectors.column(within // tile.lanes, within % tile.lanes)
    return start_of(panel, tile.width, g.column.extent) + within
