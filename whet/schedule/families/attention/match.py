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

A constant right factor is stored in panels.  Where another must be copied into them, all of it is
before the steps, or, when a block is all rows, each panel by the step that uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Binary, Expr, Read, Reduce, as_expr, const
from whet.ir.tensor import Compute, read_tensors, stages, subexpressions
from whet.schedule.families.attention.row_registers import stay_in_registers
from whet.schedule.families.rows.match import TOGETHER_BYTES, Rows, finds_positions
from whet.schedule.program.access import flatten_accesses, map_expr
from whet.tasks.rowshape import common_rows
from whet.tasks.task import Task

SCRATCH_BYTES = 512 << 10
"""Bytes of a block's scores and left factor, at most: they should stay in the second cache."""
MOST_ROWS = 16
"""Rows of a tile, at most."""


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
    """The step of a plain read along the axis; None for anything else."""
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
        """The tensor that the second product reads."""
        return self.rows.stages[-1] if self.second is not None else None


def find_attention(task: Task) -> Attention | None:
    """The task as products and row stages of one type, whose rows stay in cache, or None."""
    found = find_products(task)
    if found is None:
        return None
    first, dtype = found.first, found.first.reduce.dtype
    row_bytes = (first.column.extent + first.depth.extent) * dtype.itemsize
    if MOST_ROWS * row_bytes > SCRATCH_BYTES:
        return None
    computed = [t for t in stages(task.outputs) if isinstance(t, Compute)]
    return None if any(t.dtype is not dtype for t in computed) else found


def find_products(task: Task) -> Attention | None:
    """The task as products and row stages, whatever their size and types, or None."""
    found = [t for t in stages(task.outputs) if isinstance(t, Compute)]
    if len(task.outputs) != 1 or len(found) < 3 or any(map(finds_positions, found)):
        return None
    first = _product(found[0], task)
    if first is None or any(isinstance(t, Compute) for t in read_tensors(found[0].body)):
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
    rank = len(first.stage.axes) - 1
    if any(s.shape[:rank] != first.stage.shape[:rank] for s in between):
        return None
    if common_rows(between) != rank:
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
    return any(isinstance(t, Compute) for e in (second.b, epilogue) for t in read_tensors(e))


@dataclass(frozen=True)
class AttentionTiling:
    """The holes: tile of the first product, tile of the second, rows per block.

    `in_place` reads the left factor where it lies, which the caches must allow: the rows of a tile
    must not push each other out.  `whole`: the tile of the first product has whole rows, which
    go through the row stages in registers.  `prefetch` asks for the next panel of a constant right
    factor while the tiles of a block use the present one.
    """

    mr: int
    nv: int
    lanes: int
    nv2: int
    lanes2: int
    block: int
    in_place: int = 0
    whole: int = 0
    prefetch: int = 0


def rows_together(f: Attention, block: int) -> int:
    """Rows of a block that go through the row stages together: scores, and a line of each."""
    nbytes = 2 * f.first.column.extent * f.first.reduce.dtype.itemsize
    groups = -(-block // max(1, TOGETHER_BYTES // nbytes))
    return -(-block // groups)


# ------------------------------------------------------------------------------------ lowering
