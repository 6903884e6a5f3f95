"""The slab sketch: a contraction that converts what it reads and writes, slab by slab.

    y[n, j, l, m] = epilogue(sum(x[n, j // 32 * 16 + c, l + p, m + q] * w[j, c, p, q] for c, p, q))

    parallel slab over (images, groups):
      near[h, w, c] = x[n, c, h, w]           (turned in registers, zeros around)
      out[l, m, j] = epilogue(sum(near[l + p, m + q, c] * w[...]))     (the contraction sketch)
      y[n, j, l, m] = out[l, m, j]            (turned in registers)

As three kernels, the whole batch goes out to memory between them and comes back; a slab stays in
the cache of the core that works on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from whet.core.types import Shape
from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Expr, Read, as_expr
from whet.ir.program import (
    SCRATCH_LIMIT_BYTES,
    Buffer,
)
from whet.ir.tensor import Compute, Placeholder, Tensor, subexpressions
from whet.schedule.families.contraction.match import Contraction, Tiling, find_contraction
from whet.schedule.program.access import map_expr, memory_of
from whet.schedule.program.flat import FlatStage
from whet.schedule.program.zeros import Box
from whet.tasks.structure import Structure, vector_axis_of_contraction, zero_border
from whet.tasks.task import Border, Task

SMALLEST_TILE, LARGEST_TILE = 4, 16
"""Rows of the square tiles that turn what is copied."""


@dataclass(frozen=True, eq=False)
class Side:
    """One side of the contraction: a tensor in rows outside, with its channels last inside.

    Axis 0 counts images, `channel` is the axis of the channels, of which a slab has `members`.
    """

    tensor: Tensor
    buffer: Buffer
    channel: int
    members: int
    border: Border
    near: Buffer
    """The slab's memory."""

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Extent and border of every axis in the slab's memory, slowest first."""
        spatial = tuple((self.tensor.shape[a], *self.border[a]) for a in self.spatial)
        return (*spatial, (self.members, 0, 0))

    @property
    def spatial(self) -> tuple[int, ...]:
        return tuple(a for a in range(1, self.tensor.rank) if a != self.channel)

    @property
    def tile(self) -> int:
        """Rows of the largest square tile that fits, or 0."""
        room = min(self.members, self.tensor.shape[-1], LARGEST_TILE)
        size = 1 << room.bit_length() - 1
        return size if size >= SMALLEST_TILE else 0


@dataclass(frozen=True, eq=False)
class Slabs:
    """A contraction of one slab after the other; `contraction` is that of one image."""

    task: Task
    contraction: Contraction
    source: Side
    target: Side

    @property
    def images(self) -> int:
        return self.source.tensor.shape[0]

    @property
    def count(self) -> int:
        return self.images * self.contraction.batch

    def steps(self, t: Tiling) -> tuple[int, int]:
        """Blocks of rows and chunks of panels of one slab."""
        tiles, panels = -(-self.contraction.rows // t.mr), -(-self.contraction.columns // t.width)
        return -(-tiles // t.tiles_per_block), -(-panels // t.panels_per_chunk)


def find_slabs(task: Task) -> Slabs | None:
    """The task as a contraction between rows whose images are independent, or None."""
    moving = [t for t in task.inputs if t not in task.constants]
    if len(task.outputs) != 1 or len(moving) != 1 or task.borders:
        return None
    (stage,), (x,) = task.outputs, moving
    structure = Structure(task.inputs, task.outputs)
    wanted = vector_axis_of_contraction(structure, task.constants)
    if wanted is None:
        return None
    channel, read, depth = wanted
    reads = {e for e in subexpressions(stage.body) if isinstance(e, Read)}
    images, members = stage.axes[0], _members(read, depth)
    if {e for e in reads if e.tensor is x} != {read} or read.indices[0] is not images:
        return None
    if members is None or 0 in (channel, depth) or images.extent < 2:
        return None
    inner = {e for r in reads for n, e in enumerate(r.indices) if r is not read or n}
    if any(images in free_symbols(i) for i in inner):
        return None
    groups = x.shape[depth] // members
    border = zero_border(structure, x) or ((0, 0),) * x.rank
    source = _side(x, task, depth, members, border, "near")
    results = stage.shape[channel] // groups
    target = _side(stage, task, channel, results, ((0, 0),) * stage.rank, "out")
    if not all(_suits(side) for side in (source, target)) or stage.shape[channel] % groups:
        return None
    c = _one_image(task, source, target)
    return None if c is None or c.batch != groups else Slabs(task, c, source, target)


def _members(read: Read, depth: int) -> int | None:
    """Channels that a slab reads: all of them, or those of a group.

    x[n, j // 32 * 16 + c, ...]   (c in 16)   ->   16
    """
    form, channels = affine(read.indices[depth]), read.tensor.shape[depth]
    reduced = [a for a, _ in form.terms if isinstance(a, Axis) and a.role == "R"]
    if len(reduced) != 1 or form.coefficient(reduced[0]) != 1 or form.constant:
        return None
    members = reduced[0].extent
    others = [factor for atom, factor in form.terms if atom is not reduced[0]]
    whole = channels == members if not others else others == [members]
    return members if whole and channels % members == 0 else None


def _side(
    tensor: Tensor, task: Task, channel: int, members: int, border: Border, name: str
) -> Side:
    size = members * math.prod(
        tensor.shape[a] + sum(border[a]) for a in range(1, tensor.rank) if a != channel
    )
    near = Buffer(name, (size,), tensor.dtype)
    return Side(tensor, task.buffers[tensor], channel, members, border, near)


def _suits(side: Side) -> bool:
    """True when rows lie along another axis than the channels, and a slab is small enough."""
    rows = side.buffer.element_strides[-1] == 1 and side.channel != side.tensor.rank - 1
    clear = not any(side.border[0]) and not any(side.border[side.channel])
    return rows and clear and side.tile > 0 and side.near.type.nbytes <= SCRATCH_LIMIT_BYTES


def _one_image(task: Task, source: Side, target: Side) -> Contraction | None:
    """The contraction of one image between the memory of slabs, all groups at the same place."""
    (stage,) = task.outputs
    one = Axis(stage.axes[0].name, 1)
    x = Placeholder(source.tensor.name, (1, *source.tensor.shape[1:]), source.tensor.dtype)

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.tensor is source.tensor:
            return Read(x, (one, *e.indices[1:]))
        return None

    y = Compute(stage.name, (one, *stage.axes[1:]), map_expr(stage.body, change))
    weights = {t: task.buffers[t] for t in task.constants if t in task.buffers}
    places = {x: place_of(source, x.shape), y: place_of(target, y.shape)}
    inner = Task((y,), {**weights, **places}, task.constants, {x: source.border})
    c = find_contraction(inner)
    if c is None or not c.b_is_constant or c.vector.extent != target.members:
        return None
    if not (isinstance(c.a, Read) and c.a.tensor is memory_of(x, inner)):
        return None
    here: dict[Expr, Expr] = dict.fromkeys(c.outer, as_expr(0))
    a = Read(source.near, (substitute(c.a.indices[0], here),))
    at = substitute(c.stage.address, here)
    return replace(c, a=a, stage=FlatStage(c.stage.axes, target.near, at, c.stage.body))


def place_of(side: Side, shape: Shape) -> Buffer:
    """The slab's memory as the place of an image: groups begin where the first one does."""
    strides, step = [0] * len(shape), side.members
    strides[side.channel] = 1
    for axis in reversed(side.spatial):
        strides[axis] = step
        step *= shape[axis] + sum(side.border[axis])
    offset = sum(low * stride for (low, _), stride in zip(side.border, strides))
    return Buffer(side.tensor.name, shape, side.tensor.dtype, tuple(strides), offset)
