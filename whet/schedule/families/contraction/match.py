"""The contraction sketch: sums of products with a register tile (Ansor's missing micro-kernel).

It covers matrix products, dense layers and every convolution that is not depthwise, as one
structure.  The spatial axes of

    y[...] = epilogue(sum(a[...] * b[...] for k...))

are of three kinds: N axes occur only in b, M axes only in a, batch axes in both.  One N axis is
contiguous in the output and becomes the vector axis; where it is short, the factors may change
places, so that lanes run along an axis of the other one and results are stored one by one.  The
nest is

    parallel p over (batch, blocks of rows, chunks of panels):
      for jj in panels of the chunk: for io in tiles of the block:
        acc[mr, nv, lanes] = 0
        for k...:  acc[i, v, :] += a[row i, k] * panel[k, v, :]     (a broadcast, b a vector load)
        y[rows, panel] = epilogue(acc)

Constant b is stored panel by panel in the order of the loop; other b is read where it lies or
copied into that order, before all or panel by panel.  The last tile and the last panel are moved
back so that they end at the edge: overlapping tiles write equal values twice, and no tail code
is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from whet.ir.affine import affine, free_symbols
from whet.ir.expr import Axis, Binary, Expr, Read, Reduce, Select, Var, as_expr, elements
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, read_tensors, subexpressions
from whet.schedule.families.contraction.halo import Edge, find_edges
from whet.schedule.program.access import reads_constants_alone
from whet.schedule.program.flat import FlatStage, flatten_stage, merge_axes
from whet.schedule.program.loops import split_index
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class ColumnRange:
    """Columns from `start` to before `end` that become a result of their own.

    target[address] = value, over the axes of the contraction, whose sum is part of the value.
    """

    start: int
    end: int
    target: Buffer
    address: Expr
    value: Expr


@dataclass(frozen=True, eq=False)
class Fold:
    """A result of which every element is made of the sums of several columns.

    target[address] = value, over the axes of the contraction and `column` instead of its columns;
    the sum of column `n * column.extent + column` is the n-th variable of `sums` in the value.
    """

    column: Axis
    address: Expr
    value: Expr
    sums: tuple[Var, ...]


@dataclass(frozen=True, eq=False)
class Contraction:
    """The parts of a stage that the sketch works on."""

    task: Task
    stage: FlatStage
    reduce: Reduce
    a: Expr
    """The factor that is broadcast, over merged axes of reduction."""
    b: Expr
    """The factor that is read as vectors."""
    vector: Axis
    m_axes: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    """Batch axes and further N axes: plain outer loops."""
    k_axes: tuple[Axis, ...]
    """Reduced axes as a is read, outermost first; some stand for several of the originals."""
    k_values: dict[Expr, Expr]
    """The original reduced axes in terms of k_axes."""
    ranges: tuple[ColumnRange, ...] = ()
    """The results that share the columns, in order of the task's, if there are several; the stage
    is then the widest of them."""
    fold: Fold | None = None
    """The result, if it has fewer columns than the stage, which is then the sums alone."""

    @property
    def is_turned(self) -> bool:
        """True when lanes are not neighbours in the output."""
        return self.vector is not self.stage.vector

    @property
    def rows(self) -> int:
        return elements(self.m_axes)

    @property
    def columns(self) -> int:
        return self.vector.extent

    @property
    def depth(self) -> int:
        return elements(self.k_axes)

    @property
    def batch(self) -> int:
        return elements(self.outer)

    @cached_property
    def b_is_constant(self) -> bool:
        return reads_constants_alone(self.b, self.task)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Edges where tiles of constant b may leave out steps of outer loops over taps."""
        if not self.b_is_constant:
            return ()
        return find_edges(self.task.outputs, self.m_axes, self.k_axes[:-1])

    @cached_property
    def b_is_read_once(self) -> bool:
        """True when all products with one row read another element of b each."""
        size = self.batch * self.columns * self.depth
        return isinstance(self.b, Read) and self.b.tensor.type.size >= size

    @cached_property
    def b_is_contiguous(self) -> bool:
        """True when b can be read as vectors where it lies."""
        if not (isinstance(self.b, Read) and len(self.b.indices) == 1):
            return False
        return affine(self.b.indices[0]).coefficient(self.vector) == 1


IN_PLACE, AHEAD, BESIDE = range(3)
"""What happens to b: it is read where it lies, if it is contiguous; all of it is copied into
panels first; or each panel is copied by the step that uses it, so that it stays with the core."""


@dataclass(frozen=True)
class Tiling:
    """The holes: rows and vectors of a tile, lanes, tiles per block, panels per chunk.

    `pack_b` says what happens to a b that is not constant (IN_PLACE, AHEAD or BESIDE); `prefetch`
    asks for the next panel while the tiles of a block use the present one; `terms` is the length
    of a running sum, after which it is added to the total (0: all terms); `skip` leaves out what a
    whole tile reads outside its image.
    """

    mr: int
    nv: int
    lanes: int
    tiles_per_block: int
    panels_per_chunk: int
    pack_b: int = 0
    prefetch: int = 0
    terms: int = 0
    skip: int = 0

    @property
    def width(self) -> int:
        return self.nv * self.lanes


@lru_cache(maxsize=64)  # other families begin with it
def find_contraction(task: Task) -> Contraction | None:
    """The contraction that the task is, or None."""
    stage = _stage_of(task)
    return (
        None
        if stage is None or stage.vector is None
        else contraction_along(task, stage, stage.vector)
    )


def find_turned(task: Task) -> Contraction | None:
    """The contraction with lanes along the longest axis of the factor that is broadcast otherwise.

    y[i, j] = sum(a[i, k] * b[k, j] for k)  with 5 columns j in one vector  ->  lanes along i

    The contiguous axis is then that of neighbouring rows.  None where b consists of windows that
    overlap, because panels of it would be many times as large, or where a stands under a condition,
    which every row of every tile would ask.
    """
    stage, plain = _stage_of(task), find_contraction(task)
    if stage is None or plain is None or not plain.m_axes:
        return None
    found = contraction_along(task, stage, max(plain.m_axes, key=lambda x: x.extent))
    if found is None or isinstance(found.a, Select) or not found.b_is_read_once:
        return None
    return found


def _stage_of(task: Task) -> FlatStage | None:
    """The stage of the task, if it has one."""
    if len(task.outputs) != 1 or any(
        isinstance(t, Compute) for t in read_tensors(task.outputs[0].body)
    ):
        return None
    return flatten_stage(task.outputs[0], task)


def contraction_along(
    task: Task,
    stage: FlatStage,
    vector: Axis,
    ranges: tuple[ColumnRange, ...] = (),
    fold: Fold | None = None,
) -> Contraction | None:
    """The contraction with lanes along the axis."""
    if len(stage.reduces) != 1:
        return None
    (reduce,) = stage.reduces
    if reduce.kind != "sum" or not (isinstance(reduce.value, Binary) and reduce.value.op == "mul"):
        return None
    a, b = reduce.value.left, reduce.value.right
    if vector in free_symbols(a):
        a, b = b, a
    in_a, in_b = free_symbols(a), free_symbols(b)
    if vector in in_a or vector not in in_b or not set(reduce.axes) & in_a:
        return None
    others = [x for x in stage.axes if x is not vector]
    # The rows of a tile are those that lie closest together in a, so that they share its lines.
    # Where lanes are stored one by one, those of neighbouring rows go to the same lines.
    m_axes = tuple(
        sorted(
            (x for x in others if x not in in_b),
            key=lambda x: (x is stage.vector, -abs(_step(a, x))),
        )
    )
    outer = tuple(x for x in others if x in in_b)
    order = sorted(reduce.axes, key=lambda x: -_step(a, x))
    k_axes, k_values, a = _merge_reduced(order, a)
    return Contraction(
        task, stage, reduce, a, b, vector, m_axes, outer, k_axes, k_values, ranges, fold
    )


def _step(e: Expr, axis: Axis) -> int:
    """The step of the first flat read in e when the axis steps by one."""
    for x in subexpressions(e):
        if isinstance(x, Read) and len(x.indices) == 1:
            return affine(x.indices[0]).coefficient(axis)
    return 0


def _merge_reduced(order: list[Axis], a: Expr) -> tuple[tuple[Axis, ...], dict[Expr, Expr], Expr]:
    """Reduced axes merged as far as the reads of a allow; b is packed, so it has no say."""
    merged, (_, a) = merge_axes(order, (_last_address(a), a))
    values: dict[Expr, Expr] = {}
    rest = list(order)
    for axis in merged:
        group: list[Axis] = []
        while elements(group) < axis.extent:
            group.append(rest.pop(0))
        values.update(split_index(axis, group))
    return merged, values, a


def _last_address(a: Expr) -> Expr:
    """An address that a reads, as the witness that merge_axes asks for."""
    for x in subexpressions(a):
        if isinstance(x, Read) and len(x.indices) == 1:
            return x.indices[0]
    return as_expr(0)
