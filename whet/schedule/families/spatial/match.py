"""The spatial sketch: element-wise stages, stencils, pools, depthwise convolutions, reductions
over outer axes.

Whatever is reduced, neighbouring outputs lie along one vector axis, so lanes never mix:

    parallel p over (outer axes, chunks of columns):
      for tile in row of the second axis: for panel in columns of the chunk:
        acc[px, nv, lanes] = identity
        for k...: acc[i, v, :] = combine(acc, value)       (unrolled when short)
        y[...] = epilogue(acc)

Constant operands are stored with the vector axis last.  Edges are handled by moving the last
tile and the last vector back, as in the contraction sketch.

Results that no cache can hold may go past all of them, in vectors at aligned addresses:

    lead = align y to 16
    panel 0 at 0, panel k at lead + (k - 1) * width, the last one moved back
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.dtypes import bool_
from whet.ir.affine import affine, free_symbols
from whet.ir.expr import (
    Axis,
    Read,
)
from whet.ir.tensor import Compute, subexpressions
from whet.schedule.cost.work import lane_step
from whet.schedule.program.flat import FlatStage, flatten_stage
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Spatial:
    """A stage whose lanes run along an axis of the output."""

    task: Task
    stage: FlatStage
    vector: Axis | None
    pixels: Axis | None
    """The axis whose neighbouring positions share operands, tiled in registers."""
    outer: tuple[Axis, ...]

    @property
    def columns(self) -> int:
        return 1 if self.vector is None else self.vector.extent


@dataclass(frozen=True)
class SpatialTiling:
    """The holes: pixels per tile, vectors per tile, lanes, tiles and panels per parallel step."""

    px: int
    nv: int
    lanes: int
    tiles_per_step: int
    panels_per_step: int
    stream: int = 0
    """1: results are written past the caches, which takes one panel more."""


def find_spatial(task: Task, *, whole_groups: bool = False) -> Spatial | None:
    """The task as a spatial stage, or None if it has several stages.

    With `whole_groups`, an axis that also counts groups stays one axis: lanes then run across
    several narrow groups, and what a group shares is shuffled into its lanes.
    """
    if len(task.outputs) != 1:
        return None
    output = task.outputs[0]
    if any(
        isinstance(x.tensor, Compute) for x in subexpressions(output.body) if isinstance(x, Read)
    ):
        return None
    stage = flatten_stage(output, task, whole_groups=whole_groups)
    vector = stage.vector
    others = [a for a in stage.axes if a is not vector]
    pixels = others[-1] if others else None
    return Spatial(task, stage, vector, pixels, tuple(a for a in others if a is not pixels))


def find_whole_groups(task: Task) -> Spatial | None:
    """The task with lanes across groups, where that makes rows longer; None elsewhere."""
    whole, plain = find_spatial(task, whole_groups=True), find_spatial(task)
    if whole is None or plain is None or whole.columns <= plain.columns:
        return None
    return whole


def find_across(task: Task) -> Spatial | None:
    """The task with lanes along what it reads, and neighbours that share it in one tile.

    y[o, i, 2 * j] = sum(x[c, i, j + q] * w[o, c, q] for c, q) has no contiguous axis of its own,
    but x is contiguous along j and the same for all o.  None where that is how tiles are anyway.
    """
    plain = find_spatial(task)
    if plain is None or len(plain.stage.reduces) != 1 or len(plain.stage.axes) < 2:
        return None
    stage, lanes = plain.stage, plain.stage.axes[-1]
    (reduce,) = stage.reduces
    reads = [e for e in subexpressions(reduce.value) if isinstance(e, Read)]
    moved = [r for r in reads if lanes in free_symbols(r)]
    if not moved or any(lane_step(r, lanes) != 1 for r in moved):
        return None
    sharing = [a for a in stage.axes[:-1] if not any(a in free_symbols(r) for r in moved)]
    if not sharing or (lanes is plain.vector and sharing[-1] is plain.pixels):
        return None
    outer = tuple(a for a in stage.axes if a is not lanes and a is not sharing[-1])
    return Spatial(task, stage, lanes, sharing[-1], outer)


def can_stream(s: Spatial, lanes: int) -> bool:
    """Whether vectors at aligned addresses follow each other, wherever the result begins."""
    if s.vector is None or s.stage.target.dtype is bool_ or s.columns < lanes:
        return False
    form = affine(s.stage.address)
    others = [factor for atom, factor in form.terms if atom is not s.vector]
    return (
        lanes > 1
        and lanes & (lanes - 1) == 0
        and form.coefficient(s.vector) == 1
        and all(n % lanes == 0 for n in (*others, form.constant))
    )
