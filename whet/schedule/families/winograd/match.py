"""The Winograd sketch: short windows by transformed tiles, with fewer multiplications.

A sum of products whose image is read at h + kh and w + kw, for kernels of r taps each,

    y[h, w, o] = epilogue(sum(image[h + kh, w + kw, c] * weight[o, c, kh, kw] for c, kh, kw))

is computed m x m outputs at a time from (m + r - 1) x (m + r - 1) inputs:

    V[xi, tile, c] = B^T image_tile B         (vectors along c)
    M[xi, tile, o] = sum(V[xi, tile, c] * U[xi, c, o] for c)      (one product per point xi)
    y[tile, o]     = epilogue(A^T M A)        (vectors along o)

U holds the transformed weights, made when the kernel is built.  What is not part of a pair
(h, kh) stays what it was: further reduced axes are reduced by the products, also when they move
along an outer axis (the depth of a 3-D convolution).  One pair alone is a 1-D convolution.  Where
channels come in groups, V and M hold those of all groups, and a product is of one group.

An image read at h + d * kh, with gaps between the taps, is d images without gaps, one within the
other.  Their tiles go through the same products, since all have the same weights (see `dilation`,
also for tiles at the edge: all reads lie where the stage reads).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from whet.core.dtypes import f32, i64
from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Binary, Expr, Read, Reduce, Var, as_expr, elements
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, read_tensors, subexpressions
from whet.schedule.algorithms.dilation import Pair
from whet.schedule.algorithms.transforms import (
    Matrices,
    Transform,
    linear_plan,
    matrices,
    tile_sizes,
)
from whet.schedule.program.access import address_form, map_expr, reads_constants_alone
from whet.schedule.program.flat import FlatStage, grouped_stage
from whet.tasks.guards import zero_annihilates
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Winograd:
    """The parts of a stage that the sketch works on."""

    task: Task
    stage: FlatStage
    reduce: Reduce
    image: Expr
    weight: Expr
    vector: Axis
    """The axis that only the weights have, contiguous in the output."""
    pairs: tuple[Pair, ...]
    """Output and kernel axes that together are a position in the image; one or two pairs."""
    batch: tuple[Axis, ...]
    """Further axes of the image and the output."""
    shifts: dict[Axis, Pair]
    """Batch axes along which a reduced axis moves: again they are a position together."""
    depth: tuple[Axis, ...]
    """All other reduced axes; the last one is contiguous in the image."""
    group: tuple[Axis, ...] = ()
    """The axis that image, weights and output share, if there is one."""

    @property
    def taps(self) -> tuple[int, ...]:
        """Taps along each pair."""
        return tuple(p.taps for p in self.pairs)

    @property
    def columns(self) -> int:
        """Columns of one group."""
        return self.vector.extent

    @property
    def channels(self) -> int:
        """Channels of one group."""
        return elements(self.depth)

    @property
    def groups(self) -> int:
        return elements(self.group)

    @property
    def all_columns(self) -> int:
        """Numbers per position of M."""
        return self.groups * self.columns

    @property
    def all_channels(self) -> int:
        """Numbers per position of V."""
        return self.groups * self.channels

    @property
    def moving(self) -> tuple[Axis, ...]:
        """Reduced axes that move along a batch axis."""
        return tuple(p.kernel for p in self.shifts.values())

    @property
    def reach(self) -> int:
        """Terms of a product per number of V's channels."""
        return elements(self.moving)

    @cached_property
    def positions(self) -> tuple[Axis, ...]:
        """The batch axes as V has them: longer where a reduced axis moves along."""
        return tuple(
            Axis(s.name, s.extent + (self.shifts[s].reach if s in self.shifts else 0))
            for s in self.batch
        )

    def tiles(self, m: int) -> tuple[Axis, ...]:
        """The tiles of an image along each pair."""
        return tuple(Axis(f"tile{n}", p.tiles(m)) for n, p in enumerate(self.pairs))

    def fits(self, m: int) -> bool:
        """Whether the image is as large as a tile."""
        return all(m <= p.longest for p in self.pairs)

    def tables(self, m: int) -> tuple[Matrices, ...]:
        """The matrices along each pair."""
        return tuple(matrices(m, r) for r in self.taps)

    def input_transform(self, m: int) -> Transform:
        return Transform(tuple(linear_plan(t.input) for t in self.tables(m)))

    def output_transform(self, m: int) -> Transform:
        return Transform(tuple(linear_plan(t.output) for t in self.tables(m)))

    def sizes(self, m: int) -> tuple[int, ...]:
        """Points along each pair."""
        return tuple(m + r - 1 for r in self.taps)

    def points(self, m: int) -> int:
        """Products per tile, channel and column."""
        return math.prod(self.sizes(m))


@dataclass(frozen=True)
class WinogradTiling:
    """The holes.

    `m` outputs per tile and axis; the register tile of the products; `block` tiles that go
    through all three phases together and so stay in the cache (0: whole phases, one after the
    other); `panels_per_chunk` panels per parallel step of whole phases; `prefetch` asks for the
    next panel of weights while the present one is used; `terms` is the length of a running sum of
    the products, after which it is added to the total (0: all terms).
    """

    m: int
    mr: int
    nv: int
    lanes: int
    block: int = 0
    panels_per_chunk: int = 1
    prefetch: int = 0
    terms: int = 0

    @property
    def width(self) -> int:
        return self.nv * self.lanes


def find_winograd(task: Task) -> Winograd | None:
    """The task as short windows, or None."""
    if len(task.outputs) != 1 or any(
        isinstance(t, Compute) for t in read_tensors(task.outputs[0].body)
    ):
        return None
    stage = grouped_stage(task.outputs[0], task)
    vector = stage.vector
    if len(stage.reduces) != 1 or vector is None:
        return None
    (reduce,) = stage.reduces
    if reduce.kind != "sum" or reduce.dtype is not f32 or not _factors_are_finite(task):
        return None
    if not (isinstance(reduce.value, Binary) and reduce.value.op == "mul"):
        return None
    image, weight = reduce.value.left, reduce.value.right
    if vector in free_symbols(image):
        image, weight = weight, image
    in_image, in_weight = free_symbols(image), free_symbols(weight)
    others = [a for a in stage.axes if a is not vector]
    if vector in in_image or vector not in in_weight or not reads_constants_alone(weight, task):
        return None
    group = tuple(a for a in others if a in in_image and a in in_weight)
    others = [a for a in others if a not in group]
    if len(group) > 1 or any(a not in in_image or a in in_weight for a in others):
        return None
    moved: dict[Axis, Pair] = {}
    for k in reduce.axes:
        found = [p for s in others if s not in moved and (p := pair_of(image, s, k)) is not None]
        if found:
            nearest = min(found, key=lambda p: p.step)
            moved[nearest.outputs] = nearest
    # Of more than two, the longest: there the ragged last tile matters least.
    suited = [
        p
        for p in moved.values()
        if tile_sizes([p.taps]) and p.longest > 1 and p.kernel in in_weight
    ]
    paired = {p.outputs for p in sorted(suited, key=lambda p: p.longest)[-2:]}
    pairs = tuple(moved[s] for s in others if s in paired)
    shifts = {s: p for s, p in moved.items() if s not in paired}
    taken = {p.kernel for p in moved.values()}
    depth = _contiguous_last([k for k in reduce.axes if k not in taken], image)
    if not pairs or depth is None:
        return None
    batch = tuple(s for s in others if s not in paired)
    return Winograd(task, stage, reduce, image, weight, vector, pairs, batch, shifts, depth, group)


def _factors_are_finite(task: Task) -> bool:
    """Whether no weight is infinite or NaN: transformed, it would be in all points of a filter."""
    sums = (e for e in subexpressions(task.outputs[0].body) if isinstance(e, Reduce))
    return all(zero_annihilates(e.value) for e in sums)


def pair_of(image: Expr, outer: Axis, inner: Axis) -> Pair | None:
    """The axes as a pair: the image depends on them only through outer + step * inner."""
    ratios = {
        Fraction(form.coefficient(inner), form.coefficient(outer))
        for form in (affine(e) for e in subexpressions(image) if e.dtype is i64)
        if form.coefficient(outer)
    }
    # With larger steps, no phase would have two outputs.
    steps = sorted(int(r) for r in ratios if r.denominator == 1 and 1 <= r < outer.extent)
    pairs = (Pair(outer, inner, step) for step in steps)
    return next((p for p in pairs if moves_together(image, p)), None)


def moves_together(e: Expr, pair: Pair) -> bool:
    """True when the expression depends on the two axes only through the position."""
    position = Var("u")
    first = _normal(substitute(e, {pair.outputs: position, pair.kernel: as_expr(0)}))
    return all(
        _normal(substitute(e, {pair.outputs: position - n * pair.step, pair.kernel: as_expr(n)}))
        is first
        for n in range(1, pair.taps)
    )


def _normal(e: Expr) -> Expr:
    """The expression with all sums of indices as linear forms, so that equals are identical."""

    def change(x: Expr) -> Expr | None:
        if isinstance(x, Binary) and x.dtype is i64 and x.op in ("add", "sub", "mul"):
            return affine(x).expr()
        return None

    return map_expr(e, change)


def _contiguous_last(axes: list[Axis], image: Expr) -> tuple[Axis, ...] | None:
    """The axes with the one last along which the image is contiguous; None if there is none."""
    forms = [
        address_form(x.tensor, x.indices)
        for x in subexpressions(image)
        if isinstance(x, Read) and isinstance(x.tensor, Buffer)
    ]
    for axis in axes:
        if forms and all(form.coefficient(axis) in (0, 1) for form in forms):
            return (*(a for a in axes if a is not axis), axis)
    return None
