"""Attention as a GPU computes it: two products, and stages along rows between them.

    s[b, l, m] = epilogue(sum(q[b, l, k] * x[b, m, k] for k))      scores of a query and all keys
    p[b, l, m] = softmax(s)[b, l, m]                               any stages along rows
    y[b, l, d] = epilogue(sum(p[b, l, m] * v[b, m, d] for m))      values, weighted

Nothing here asks for a softmax.  A block has a few rows from the first product to the last:

    grid:      tiles of rows, for every position of the outer axes
    scores:    tiles of keys go through a ring of shared memory; their products with the queries
               stay in shared memory, for all keys
    rows:      the threads of a row take it through the stages and leave the weights
    results:   tiles of values go through a ring; products with the weights are summed up

Tiles of keys and values are one sequence, so that the first values are under way while the last
scores are computed.  All keys are there when a row begins: its stages are the same arithmetic as
in a kernel of their own, and a row may be as long as shared memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from whet.core.dtypes import DType, f32
from whet.core.types import Array
from whet.ir.expr import Binary, Call, Const, Expr, Read, Reduce, call, elements
from whet.ir.tensor import Compute, Placeholder, Tensor
from whet.schedule.families.attention.match import Product, find_products
from whet.schedule.families.gpu_attention.end import with_end
from whet.schedule.families.gpu_contraction.match import Leaf, Span, Tiling, kept_of
from whet.schedule.families.gpu_contraction.place import place_of, unit_axis
from whet.schedule.families.gpu_rows.match import GpuRows, rows_on_gpu
from whet.schedule.families.rows.match import Rows
from whet.schedule.program.access import map_expr
from whet.tasks.task import Task

N = TypeVar("N", int, Array)


@dataclass(frozen=True)
class AttentionTiling:
    """The holes: `bm` rows of a block and `bn` keys of a stage; `tm` x `tn` scores and `tm2` x
    `tn2` results of a thread or warp; `stages` of the ring; `trigger` says when the next kernel
    may be launched (`whet.schedule.program.triggers`); `parts` of the keys of a stage are summed
    up by different warps."""

    bm: int
    bn: int
    tm: int
    tn: int
    tm2: int
    tn2: int
    stages: int
    trigger: int
    parts: int = 1


@dataclass(frozen=True, eq=False)
class GpuAttention:
    """Both products, with what is kept of their factors in shared memory, and the rows between."""

    task: Task
    leaf: Leaf
    first: Product
    second: Product
    queries: Expr
    keys: Expr
    values: Expr
    rows: GpuRows
    """The stages: the first is the score, of which `total` is the sum, the last one the weight."""
    total: Expr

    @property
    def output(self) -> Compute:
        """The result, which the last stage computes, with what follows the product."""
        (output,) = self.task.outputs
        return output

    @property
    def batch(self) -> int:
        return elements(self.first.outer)

    @property
    def count(self) -> int:
        """Rows of every product."""
        return self.first.row.extent

    @property
    def length(self) -> int:
        """Keys."""
        return self.first.column.extent

    @property
    def depth(self) -> int:
        """Numbers of a query, and of a key."""
        return self.first.depth.extent

    @property
    def width(self) -> int:
        """Numbers of a value, and of a result."""
        return self.second.column.extent

    @property
    def score_type(self) -> DType:
        return self.first.reduce.dtype

    @property
    def weight(self) -> Compute:
        """The last stage."""
        return self.rows.stages[-1].stage

    @property
    def in_place(self) -> bool:
        """Whether weights are written over the sums that they are computed from."""
        return self.weight.dtype == self.score_type

    @cached_property
    def turned_keys(self) -> bool:
        """Whether neighbours in memory are numbers of neighbouring keys, and not of one."""
        place = place_of(self.keys, self.task)
        axes = (self.first.column, self.first.depth)
        return place is not None and unit_axis(place, axes) is self.first.column

    @cached_property
    def padded_depth(self) -> int:
        """The depth with zeros behind it, which a leaf takes in whole steps."""
        step = self.leaf.depth(self.queries.dtype)
        return -(-self.depth // step) * step

    def steps(self, t: AttentionTiling) -> int:
        """Tiles of keys, the last of which may reach beyond them."""
        return -(-self.length // t.bn)

    def slots(self, t: AttentionTiling) -> int:
        """Tiles of keys, and of values, that shared memory holds at once."""
        return min(t.stages, self.steps(t))

    def row_span(self, t: AttentionTiling) -> Span:
        return Span(self.count, t.bm)

    def key_span(self, t: AttentionTiling) -> Span:
        """Keys are summed over: no tile moves back over another."""
        return Span(self.length, t.bn, t.bn)

    def result_span(self, t: AttentionTiling) -> Span:
        size = padded_width(t.bm, t.bn, t.tm, t.tn, t.tm2, t.tn2, t.parts)
        return Span(self.width, size, size)

    def threads(self, t: AttentionTiling) -> int:
        return (t.bm // t.tm) * (t.bn // t.tn) * self.leaf.lanes

    def score_tiling(self, t: AttentionTiling) -> Tiling:
        """The tiles of a stage of the first product."""
        return Tiling(t.bm, t.bn, t.tm, t.tn, self.padded_depth, t.stages, 1, t.trigger)

    def result_tiling(self, t: AttentionTiling) -> Tiling:
        """The tiles of a part of a stage of the second product."""
        width = self.result_span(t).size
        return Tiling(t.bm, width, t.tm2, t.tn2, t.bn // t.parts, t.stages, 1, t.trigger)


def padded_width(bm: N, bn: N, tm: N, tn: N, tm2: N, tn2: N, parts: N) -> N:
    """Columns of results that the threads which compute the scores have together."""
    return (bm // tm) * (bn // tn) // (bm // tm2) // parts * tn2


def find_gpu_attention(task: Task, leaf: Leaf) -> GpuAttention | None:
    """The products of the task with rows between them, if the leaf multiplies their types."""
    found = find_products(task)
    if found is None or found.second is None:
        joined = with_end(task)
        found = None if joined is None else find_products(joined)
    if found is None or found.second is None:
        return None
    first, second = found.first, found.second
    *between, weight = found.rows.stages
    kept = kept_of(weight.body)
    queries, keys, values = kept_of(first.a), kept_of(first.b), kept_of(second.b)
    for product, a, b in ((first, queries, keys), (second, kept, values)):
        if product.reduce.dtype.bits < 32:
            return None
        if leaf.types and not (a.dtype == b.dtype and a.dtype.name in leaf.types):
            return None
        if leaf.is_matrix and product.reduce.dtype.name != "f32":
            return None
    if leaf.rounds:
        kept = call("tf32", kept)
    is_coarse = leaf.rounds or kept.dtype.bits == 16
    total = Read(Placeholder("total", (), first.reduce.dtype), ())
    score = Compute(first.stage.name, first.stage.axes, _with_sum(first.stage.body, total))
    weights = Compute("weight", weight.axes, kept)
    stages = _reading({first.stage: score}, [*between, weights], is_coarse)
    rows = rows_on_gpu(Rows(task, (score, *stages), found.rows.row_rank))
    if rows is None:
        return None
    return GpuAttention(task, leaf, first, second, queries, keys, values, rows, total)


def _with_sum(body: Expr, total: Expr) -> Expr:
    """An epilogue over a sum that is already known."""
    return map_expr(body, lambda e: total if isinstance(e, Reduce) else None)


def _reading(
    changed: dict[Tensor, Compute], stages: Sequence[Compute], near: bool
) -> list[Compute]:
    """The stages, which read changed ones instead of those that they read.

    Where `near`, exponentials and quotients are as precise as weights of 10 bits need them: the
    error of a weight is 1e-6 where it is large enough to count in the sum of a row.
    """
    found: list[Compute] = []
    for stage in stages:

        def renamed(e: Expr) -> Expr | None:
            if isinstance(e, Read) and e.tensor in changed:
                return Read(changed[e.tensor], e.indices)
            return _near(e, renamed) if near and e.dtype is f32 else None

        made = Compute(stage.name, stage.axes, map_expr(stage.body, renamed))
        changed[stage] = made
        found.append(made)
    return found


def _near(e: Expr, inside: Callable[[Expr], Expr | None]) -> Expr | None:
    """exp(x) -> exp_near(x), x / y -> x * reciprocal_near(y)"""
    match e:
        case Call(name="exp", args=(x,)):
            return call("exp_near", map_expr(x, inside))
        case Binary(op="div", left=x, right=y) if not isinstance(y, Const):
            inverse = call("reciprocal_near", map_expr(y, inside))
            one = isinstance(x, Const) and x.value == 1
            return inverse if one else map_expr(x, inside) * inverse
    return None
