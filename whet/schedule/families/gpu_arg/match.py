"""The sketch of positions on GPUs: several threads look for the best of many terms.

    y[i] = argmax(x[i, k] for k in 50257)

    part, slot of every thread of a block                `lanes` threads for each slot
    await inputs
    for steps: if x[slot, step * lanes + part] is better than best: best, at = it, its position
    lanes exchange what they found; warps leave it in shared memory; barrier; the best of all
    if part == 0: y[...] = epilogue(at)

Of equals the first one counts, as if one thread had gone over all terms.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.expr import Axis, Reduce, elements
from whet.schedule.families.spatial.match import find_spatial
from whet.schedule.program.flat import FlatStage
from whet.schedule.program.triggers import NEVER
from whet.tasks.task import Task

FEWEST_TERMS = 32
"""Shorter searches are the work of one thread."""


@dataclass(frozen=True, eq=False)
class GpuArg:
    """A stage of one long search."""

    task: Task
    stage: FlatStage
    reduce: Reduce

    @property
    def terms(self) -> tuple[Axis, ...]:
        return self.reduce.axes

    @property
    def length(self) -> int:
        return elements(self.terms)


@dataclass(frozen=True)
class GpuArgTiling:
    """The holes: threads that share the terms of an output, threads of a block, and the trigger."""

    lanes: int
    threads: int
    trigger: int = NEVER


def find_gpu_arg(task: Task) -> GpuArg | None:
    """The task as a long search for positions, or None."""
    found = find_spatial(task)
    if found is None or len(found.stage.reduces) != 1:
        return None
    (reduce,) = found.stage.reduces
    if not reduce.kind.startswith("arg") or elements(reduce.axes) < FEWEST_TERMS:
        return None
    return GpuArg(task, found.stage, reduce)
