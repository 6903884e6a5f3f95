"""The contraction of a task as a GPU computes it.

    y[...] = epilogue(sum(a[...] * b[...] for k...))

is seen as matrix products: rows are the axes that only a has, columns the axis along which the
output is contiguous, and all reduced axes are one depth, ordered so that neighbours in it are
neighbours in a.  The nest of programs is

    grid:      tiles of rows and columns, for every position of the axes that both factors have
    cluster:   blocks of it share the depth, and add up their sums through shared memory
    ring:      stages of shared memory that copies under way fill
    leaf:      the tile of a thread (`ffma`) or of a warp (`mma`), in registers

and the rest of the stage is computed where the sums are complete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from whet.core.dtypes import DType
from whet.core.precision import STRICT
from whet.ir.affine import affine, substitute
from whet.ir.expr import Axis, Cast, Expr, Select, elements
from whet.ir.threads import WARP
from whet.schedule.families.contraction.match import Contraction, find_contraction
from whet.schedule.families.gpu_contraction.place import place_of
from whet.schedule.families.gpu_contraction.runs import Sum, in_whole_runs
from whet.schedule.program.access import reads_constants_alone
from whet.schedule.program.loops import start_of
from whet.tasks.guards import is_guard
from whet.tasks.task import Task

VECTOR = 4
"""Neighbouring results that a thread finishes at once."""


@dataclass(frozen=True)
class Tiling:
    """The holes: `bm` x `bn` results of a block, `tm` x `tn` of a thread or warp, `bk` terms of a
    stage, `stages` of the ring, `splits` blocks that share a sum; `trigger` says when the next
    kernel may be launched (`whet.schedule.program.triggers`)."""

    bm: int
    bn: int
    tm: int
    tn: int
    bk: int
    stages: int
    splits: int
    trigger: int


@dataclass(frozen=True)
class Leaf:
    """What multiplies a tile: multiply-adds of threads, or products of matrices by warps."""

    name: str
    lanes: int
    """Threads that compute a tile of tm x tn together."""
    types: tuple[str, ...]
    """Types of factors in shared memory; none: that of the sum, or any that is made into it."""
    products: int = 1
    """Products of matrices that make one; 3: factors are split into a high and a low part."""
    precision: str = STRICT
    """The precision that allows it; what is exact always is."""

    @property
    def is_matrix(self) -> bool:
        return self.lanes == WARP

    @property
    def rounds(self) -> bool:
        """Whether factors are rounded before products cut them off."""
        return self.precision == "tf32"

    def depth(self, dtype: DType) -> int:
        """Terms of one step: a vector along the depth, or 32 bytes of matrices."""
        return 32 // dtype.itemsize if self.is_matrix else VECTOR


FFMA = Leaf("ffma", 1, ())
MMA = Leaf("mma", WARP, ("f16", "bf16"))
TF32 = Leaf("tf32", WARP, ("f32",), precision="tf32")
"""The last 13 bits of factors count for nothing."""
FP32X3 = Leaf("fp32x3", WARP, ("f32",), products=3, precision="fp32x3")
"""Nearly as precise as f32, but not the same."""


@dataclass(frozen=True, eq=False)
class GpuContraction:
    """A contraction and what is kept of its factors in shared memory."""

    contraction: Contraction
    leaf: Leaf
    a: Expr
    """The first factor before it is made the type of the sum."""
    b: Expr
    """The second factor, over `k_axes` as well."""
    k_axes: tuple[Axis, ...]
    """Reduced axes, so that the last one steps through neighbours of a."""

    @property
    def task(self) -> Task:
        return self.contraction.task

    @property
    def dtype(self) -> DType:
        """The type of sums."""
        return self.contraction.reduce.dtype

    @property
    def depth(self) -> int:
        return elements(self.k_axes)

    @cached_property
    def a_is_constant(self) -> bool:
        return reads_constants_alone(self.a, self.task)

    @property
    def b_is_constant(self) -> bool:
        return self.contraction.b_is_constant

    def threads(self, t: Tiling) -> int:
        """Threads of a block."""
        return (t.bm // t.tm) * (t.bn // t.tn) * self.leaf.lanes

    def steps(self, t: Tiling) -> int:
        """Stages that one block of a cluster goes through: some may lie behind the depth."""
        return -(-self.depth // (t.bk * t.splits))

    def slots(self, t: Tiling) -> int:
        """Stages that the ring has room for: of a depth that is shorter, all are there at once."""
        return min(t.stages, self.steps(t))

    def rows(self, t: Tiling) -> Span:
        return Span(self.contraction.rows, t.bm)

    def columns(self, t: Tiling) -> Span:
        return Span(self.contraction.columns, t.bn, VECTOR)


@dataclass(frozen=True)
class Span:
    """The tiles of a row of positions.

    The last one is moved back to end at the edge, which must then be a multiple of `step`;
    otherwise, or if the only tile is longer than the row, it goes beyond.
    """

    extent: int
    size: int
    step: int = 1

    @property
    def tiles(self) -> int:
        return -(-self.extent // self.size)

    @property
    def overruns(self) -> bool:
        """Whether positions of the last tile lie outside."""
        moves = self.extent >= self.size and self.extent % self.step == 0
        return self.extent % self.size != 0 and not moves

    def start(self, number: Expr) -> Expr:
        return number * self.size if self.overruns else start_of(number, self.size, self.extent)


def find_gpu_contraction(task: Task, leaf: Leaf) -> GpuContraction | None:
    """The contraction of the task, if the leaf multiplies its types."""
    c = find_contraction(task)
    if c is None or c.reduce.dtype.bits < 32:
        return None
    a, b = kept_of(c.a), kept_of(c.b)
    if leaf.types and not (a.dtype == b.dtype and a.dtype.name in leaf.types):
        return None
    if leaf.is_matrix and c.reduce.dtype.name != "f32":
        return None
    place = place_of(a, task)
    found = Sum(a, substitute(b, c.k_values), c.k_axes)
    if place is not None:
        form = affine(place.address)
        ordered = tuple(sorted(c.k_axes, key=lambda k: -abs(form.coefficient(k))))
        found = replace(found, axes=ordered)
        if c.b_is_constant:
            found = in_whole_runs(found, place, task)
    return GpuContraction(c, leaf, found.a, found.b, found.axes)


def kept_of(factor: Expr) -> Expr:
    """A factor in the type that it is read in, where that takes no more room.

    f32(x[i])  ->  x[i]        select(inside, f32(x[i]), 0.0)  ->  select(inside, x[i], 0.0)
    """
    if isinstance(factor, Select) and is_guard(factor):
        kept = kept_of(factor.then)
        if kept is not factor.then:
            zero = Cast(factor.other, kept.dtype)
            return Select(factor.condition, kept, zero)
    if isinstance(factor, Cast):
        inner = factor.value.dtype
        if inner.itemsize <= factor.dtype.itemsize and not inner.is_storage_only:
            return factor.value
    return factor
