"""The sketch of turned values on GPUs: transpositions, other layouts, and what is computed of them.

    y[i, c, p] = f(x[i, p, c], z[i, c, p])

    for a tile of p and c, by the threads of a block
      neighbouring threads take neighbouring c:   cell[p, c] = x[i, p, c]
      barrier
      neighbouring threads take neighbouring p:   y[i, c, p] = f(cell[p, c], z[i, c, p])

Loads and stores are whole lines of memory this way.  A thread that turned values by itself would
touch a line for every one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from whet.ir.expr import Axis, Read
from whet.schedule.cost.work import lane_step
from whet.schedule.families.gpu_spatial.early import unconditional_reads
from whet.schedule.families.spatial.match import find_spatial
from whet.schedule.program.access import reads_constants_alone
from whet.schedule.program.flat import FlatStage
from whet.schedule.program.triggers import NEVER
from whet.tasks.task import Task

LEAST = 16
"""Elements along both axes, at least: shorter ones leave most of a tile empty."""


@dataclass(frozen=True, eq=False)
class GpuTurned:
    """A stage without sums, some of whose operands lie along another axis than its result."""

    task: Task
    stage: FlatStage
    written: Axis
    """The axis along which neighbours of the result are neighbours in memory."""
    read: Axis
    """That along which those of the operands are."""
    turned: tuple[Read, ...]
    """These operands."""


@dataclass(frozen=True)
class GpuTurnedTiling:
    """The holes: elements of a tile along both axes, and the trigger."""

    size: int
    trigger: int = NEVER


def find_gpu_turned(task: Task) -> GpuTurned | None:
    """The task as tiles that are turned, or None where nothing is, or along several axes."""
    found = find_spatial(task)
    if found is None or found.stage.reduces or found.vector is None:
        return None
    stage, written = found.stage, found.vector
    if lane_step(Read(stage.target, (stage.address,)), written) != 1:
        return None
    reads = unconditional_reads(stage.body, lambda r: not reads_constants_alone(r, task))
    along = {r: tuple(_along(r, stage)) for r in reads if lane_step(r, written) not in (0, 1)}
    turned = tuple(r for r, axes in along.items() if axes and axes[0] is not written)
    axes = {along[r][0] for r in turned}
    if len(axes) != 1:
        return None
    (read,) = axes
    if min(read.extent, written.extent) < LEAST:
        return None
    return GpuTurned(task, stage, written, read, turned)


def _along(read: Read, stage: FlatStage) -> Iterator[Axis]:
    """The axes along which neighbours of a read are neighbours in memory."""
    return (a for a in stage.axes if a.extent > 1 and lane_step(read, a) == 1)
