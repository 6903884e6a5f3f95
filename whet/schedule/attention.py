"""The attention sketch: products whose rows go through a chain of row stages while in cache.

    s[b, l, m] = sum(q[b, l, k] * x[b, k, m] for k)            (with an epilogue: scale, mask)
    p[b, l, m] = softmax(s)[b, l, m]                           (any stages along rows)
    y[b, l, d] = sum(p[b, l, m] * v[b, m, d] for m)            (absent: y is p)

Nothing here asks for a softmax: a product, stages that share its rows, and perhaps a second
product along them.  A step takes a block of rows from one product to the other:

    parallel over (batch, blocks of rows):
      left[block, k] = q                                       (next to each other, prologue done;
                                                                or q is read where it lies)
      scores[block, m] = left * panels of x                    (register tiles)
      for a few rows of the block:  the row stages, back into scores
      y[block, d] = scores * v                                 (register tiles)

so what lies between the products never leaves the caches of the core.  Where a row is a few
vectors, a tile may hold `whole` rows of scores, and the stages work on its registers:

      for a few rows of the block:
        tile = left * panel of x                               (whole rows, in registers)
        the row stages on the tile, into y, or into scores for the second product

Where x must be copied into panels, all of them are before the steps, or, when a block is all rows,
each by the step that uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Binary, Expr, Read, Reduce, Var, as_expr, const
from whet.ir.program import Allocate, Buffer, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor, stages, subexpressions
from whet.schedule.access import address_form, flat_buffer, flatten_accesses, map_expr
from whet.schedule.contraction_lowering import copy_panel, copy_panels
from whet.schedule.kernel import Kernel
from whet.schedule.model import longest_sum
from whet.schedule.nest import arguments_of, loop, split_index, start_of
from whet.schedule.row_registers import RegisterRows, RowVectors, stay_in_registers
from whet.schedule.rows import TOGETHER_BYTES, Rows, RowTiling, RowWriter, finds_positions
from whet.schedule.tile import RegisterTile
from whet.tasks.rowshape import common_rows
from whet.tasks.task import Task

SCRATCH_BYTES = 512 << 10
"""Bytes of a block's scores and left factor, at most: they should stay in the second cache."""
MOST_ROWS = 16
"""Rows of a tile, at most."""
PANEL_BYTES = 128 << 10
"""Bytes of a panel that a step copies for itself, at most: a part of the second cache."""


@dataclass(frozen=True, eq=False)
class Product:
    """stage[outer..., row, column] = body, in which the reduction sums a * b.

    a depends on the row and not on the column, b on the column and not on the row.
    """

    stage: Compute
    body: Expr
    reduce: Reduce
    a: Expr
    b: Expr
    depth: Axis

    @property
    def row(self) -> Axis:
        return self.stage.axes[-2]

    @property
    def column(self) -> Axis:
        return self.stage.axes[-1]

    @property
    def outer(self) -> tuple[Axis, ...]:
        return self.stage.axes[:-2]

    @property
    def b_is_contiguous(self) -> bool:
        return _step(self.b, self.column) == 1

    @property
    def row_step(self) -> int | None:
        """Elements from one row of a to the next, if a can be read where it lies."""
        return _step(self.a, self.row) if _step(self.a, self.depth) == 1 else None


def _step(e: Expr, axis: Axis) -> int | None:
    """How far a plain read moves along the axis; None for anything else."""
    if not (isinstance(e, Read) and len(e.indices) == 1):
        return None
    return affine(e.indices[0]).coefficient(axis)


@dataclass(frozen=True, eq=False)
class Attention:
    """The first product, the stages along its rows, and perhaps a product along these.

    `rows` ends with the factor of the second product as a stage of its own, if there is one.
    """

    task: Task
    first: Product
    rows: Rows
    second: Product | None

    @property
    def rows_fit_registers(self) -> bool:
        """Whether the row stages can work on rows in registers, if there are enough of these."""
        return stay_in_registers(self.rows, self.first.stage)

    @property
    def between(self) -> Compute | None:
        """What the second product reads."""
        return self.rows.stages[-1] if self.second is not None else None


def find_attention(task: Task) -> Attention | None:
    """The task as products and row stages, or None."""
    found = [t for t in stages(task.outputs) if isinstance(t, Compute)]
    if len(task.outputs) != 1 or len(found) < 3 or any(map(finds_positions, found)):
        return None
    first = _product(found[0], task)
    if first is None or any(isinstance(t, Compute) for t in _tensors(found[0].body)):
        return None
    second = _product(found[-1], task)
    between = found[1:]
    if second is not None:
        factor = _factor_stage(second, found[-1])
        between = [*found[1:-1], factor]
        if second.depth.extent != first.column.extent or not _at_own_place(factor, first.stage):
            return None
        if _sees_more_than_its_rows(second):
            return None
    row_bytes = (first.column.extent + first.depth.extent) * first.reduce.dtype.itemsize
    if MOST_ROWS * row_bytes > SCRATCH_BYTES:
        return None
    rank = len(first.stage.axes) - 1
    if any(s.shape[:rank] != first.stage.shape[:rank] for s in between):
        return None
    if common_rows(between) != rank or any(t.dtype is not first.reduce.dtype for t in found):
        return None
    return Attention(task, first, Rows(task, tuple(between), rank), second)


def _product(stage: Compute, task: Task) -> Product | None:
    """The product that a stage is, its last two axes being row and column."""
    body = flatten_accesses(stage, task)
    reduces = [e for e in subexpressions(body) if isinstance(e, Reduce)]
    if len(reduces) != 1 or len(stage.axes) < 2 or min(stage.shape[-2:]) < 2:
        return None
    (reduce,) = reduces
    axes = [x for x in reduce.axes if x.extent > 1]
    if len(axes) != 1 or reduce.kind != "sum" or not reduce.dtype.is_float:
        return None
    (depth,) = axes
    value = substitute(reduce.value, {x: as_expr(0) for x in reduce.axes if x is not depth})
    if not (isinstance(value, Binary) and value.op == "mul"):
        return None
    row, column = stage.axes[-2:]
    for a, b in ((value.left, value.right), (value.right, value.left)):
        in_a, in_b = free_symbols(a), free_symbols(b)
        if {row, depth} <= in_a and {column, depth} <= in_b:
            if column in in_a or row in in_b:
                return None
            return Product(stage, body, reduce, a, b, depth)
    return None


def _factor_stage(second: Product, stage: Compute) -> Compute:
    """The factor of a product that depends on its rows, as a stage along them.

    y[l, d] = sum(e[l, m] / t[l] * v[m, d] for m)   ->   f[l, m] = e[l, m] / t[l]
    """
    along = Axis("f", second.depth.extent)
    return Compute("factor", (*stage.axes[:-1], along), substitute(second.a, {second.depth: along}))


def _at_own_place(factor: Compute, scores: Compute) -> bool:
    """True when it may be written over the scores: it reads them only where it writes."""
    return all(
        all(i is a or a.extent == 1 for i, a in zip(e.indices, factor.axes))
        for e in subexpressions(factor.body)
        if isinstance(e, Read) and e.tensor is scores
    )


def _sees_more_than_its_rows(second: Product) -> bool:
    """True when stages before a product are also its right factor, or part of its epilogue.

    sum(p[l, m] * p[m, d] for m)   needs rows of other blocks
    """
    zero = const(0, second.reduce.dtype)
    epilogue = map_expr(second.body, lambda e: zero if e is second.reduce else None)
    return any(isinstance(t, Compute) for e in (second.b, epilogue) for t in _tensors(e))


def _tensors(body: Expr) -> list[Tensor]:
    return [x.tensor for x in subexpressions(body) if isinstance(x, Read)]


@dataclass(frozen=True)
class AttentionTiling:
    """The holes: tile of the first product, tile of the second, rows per block.

    `in_place` reads the left factor where it lies, which the caches must allow: the rows of a tile
    must not push each other out.  `whole`: the tile of the first product has whole rows, which
    go through the row stages in registers.
    """

    mr: int
    nv: int
    lanes: int
    nv2: int
    lanes2: int
    block: int
    in_place: int = 0
    whole: int = 0


def rows_together(f: Attention, block: int) -> int:
    """How many rows of a block go through the row stages together: scores, and a line of each."""
    nbytes = 2 * f.first.column.extent * f.first.reduce.dtype.itemsize
    groups = -(-block // max(1, TOGETHER_BYTES // nbytes))
    return -(-block // groups)


# ------------------------------------------------------------------------------------ lowering
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
        inputs, arguments = arguments_of(task, nest, {})
        (output,) = task.outputs
        outputs = (flat_buffer(task.buffers[output]),)
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

        return loop(r, self.t.block, *along(g.depth.extent, self.t.lanes, store))

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
        b, near, copies = self.right(g, tile, panel, column)
        body = self.sums(g, left, tile, row, b, lambda total: store(g, total, row, column))
        tiles, panels = -(-self.t.block // tile.mr), -(-g.column.extent // tile.width)
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
    ) -> Stmt:
        """A tile of a product."""
        k, terms = Var("k"), longest_sum(g.depth.extent, g.reduce.dtype)
        return tile.multiply(left(row, k), b(k), [(k, g.depth.extent)], finish, terms=terms)

    def right(
        self, g: Product, tile: RegisterTile, panel: Expr, column: Expr
    ) -> tuple[Callable[[Expr], Expr], Buffer, tuple[Stmt, ...]]:
        """The right factor of a tile by depth, room for a panel, and what copies it there."""
        near = Buffer("panel", (g.depth.extent, tile.width), g.b.dtype)
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
        return Store(flat_buffer(output), (address,), self.value(g, total, row, column))

    def value(self, g: Product, total: Expr, row: Expr, column: Expr) -> Expr:
        finished = map_expr(g.body, lambda e: total if e is g.reduce else None)
        return substitute(finished, self.where(g, row, column=column))


def column_in(g: Product, tile: RegisterTile, panel: Expr, within: Expr) -> Expr:
    """The column at a position within a panel; one that is wider than a row has its vectors."""
    if tile.width > g.column.extent:
        vectors = RowVectors(g.column.extent, tile.lanes)
        return vectors.column(within // tile.lanes, within % tile.lanes)
    return start_of(panel, tile.width, g.column.extent) + within


def along(extent: int, lanes: int, store: Callable[[Expr], Stmt]) -> list[Stmt]:
    """Vector stores along a run: whole vectors, then one of what is left."""
    n, lane = Var("n"), Var("lane")
    found: list[Stmt] = []
    if extent >= lanes:
        vector = loop(lane, lanes, store(n * lanes + lane), kind="vector")
        found.append(loop(n, extent // lanes, vector))
    if rest := extent % lanes:
        found.append(loop(lane, rest, store(lane + (extent - rest)), kind="vector"))
    return found
