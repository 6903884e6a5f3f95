"""The transposing sketch: copies between layouts whose contiguous axes differ.

    y[..., a, ..., b] = x[...]      x contiguous along b, y along a

    parallel p over (other axes, blocks of b):
      for blocks of a:
        tile[i, :] = x at a0 + i, b0 ...          (vectors along b)
        transpose tile
        y at b0 + i, a0 ... = tile[i, :]           (vectors along a)

Both sides move whole vectors, where lanes along one of them would pick the other apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.affine import affine
from whet.ir.expr import Axis, Read
from whet.ir.program import Buffer
from whet.schedule.program.flat import FlatStage, flatten_stage
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Transposed:
    """A copy and the axes along which its two sides are contiguous."""

    task: Task
    stage: FlatStage
    source: Axis
    target: Axis
    outer: tuple[Axis, ...]


@dataclass(frozen=True)
class TransposedTiling:
    """The holes: rows and lanes of the square tile, and blocks of the source axis per step."""

    size: int
    blocks_per_step: int


def find_transposed(task: Task) -> Transposed | None:
    """The task as a copy between layouts, or None."""
    if len(task.outputs) != 1:
        return None
    stage = flatten_stage(task.outputs[0], task)
    body = stage.body
    if not (isinstance(body, Read) and isinstance(body.tensor, Buffer) and len(body.indices) == 1):
        return None
    form = affine(body.indices[0])
    if any(not isinstance(atom, Axis) for atom, _ in form.terms):
        return None
    source = next((a for a in stage.axes if form.coefficient(a) == 1), None)
    target = stage.vector
    if source is None or target is None or source is target:
        return None
    outer = tuple(a for a in stage.axes if a is not source and a is not target)
    return Transposed(task, stage, source, target, outer)
