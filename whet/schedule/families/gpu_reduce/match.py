"""The sketch of long reductions on GPUs: several threads share the terms of an output.

    y[i] = epilogue(sum(x[i, k] for k in 4096))

    part, slot of every thread of a block                    split parts of each slot's terms
    known, factor = constants of the epilogue and of the first steps
    await inputs
    if part == 0: operand = other operands of the epilogue
    for steps: acc[v] = combine(acc[v], value at (step * split + part) * width + v)
    along 0: lanes exchange their sums, warps leave theirs in shared memory; barrier; their sum
    along 1: cells[part, slot] = acc                         (shared memory)
             barrier; cells of all parts combined, a few at a time
    if part == 0: y[...] = epilogue(total)

Threads that follow each other take terms that follow each other (`along` 0), or outputs that do
(`along` 1), depending on what lies side by side in memory.  One output of very many terms is the
work of a cluster: `ranks` blocks take every so many-th term and read each other's totals.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.expr import Axis, Expr, Read, Reduce, as_expr, elements
from whet.ir.tensor import subexpressions
from whet.schedule.cost.work import form_of, step_along
from whet.schedule.families.spatial.match import find_spatial
from whet.schedule.program.flat import FlatStage, merge_axes
from whet.schedule.program.triggers import NEVER
from whet.tasks.task import Task

FEWEST_TERMS = 32
"""Shorter reductions are the work of one thread."""
ALONG_TERMS, ALONG_OUTPUTS = 0, 1
"""Values of the hole `along`."""


@dataclass(frozen=True, eq=False)
class GpuReduce:
    """A stage of one long reduction."""

    task: Task
    stage: FlatStage
    reduce: Reduce
    vector: Axis | None
    terms: tuple[Axis, ...]
    """What is reduced, merged where memory allows, furthest apart first."""
    value: Expr
    """What is reduced, over the merged axes."""

    @property
    def columns(self) -> int:
        return 1 if self.vector is None else self.vector.extent


@dataclass(frozen=True)
class GpuReduceTiling:
    """The holes: threads that share the terms of an output, threads of a block, what follows each
    other, elements that a thread takes at once, blocks of a cluster, and the trigger."""

    split: int
    threads: int
    along: int
    width: int
    ranks: int = 1
    trigger: int = NEVER


def find_gpu_reduce(task: Task) -> GpuReduce | None:
    """The task as a long reduction, or None."""
    found = find_spatial(task)
    if found is None or len(found.stage.reduces) != 1:
        return None
    (reduce,) = found.stage.reduces
    if reduce.kind.startswith("arg") or elements(reduce.axes) < FEWEST_TERMS:
        return None
    terms, value = _merged(reduce)
    return GpuReduce(task, found.stage, reduce, found.vector, terms, value)


def _merged(reduce: Reduce) -> tuple[tuple[Axis, ...], Expr]:
    """The axes of a reduction in the order of memory, with as few as it allows."""
    forms = [form_of(e) for e in subexpressions(reduce.value) if isinstance(e, Read)]

    def apart(axis: Axis) -> int:
        return min((n for n in (step_along(f, axis) for f in forms) if n), default=0)

    order = sorted(reduce.axes, key=lambda a: -apart(a))
    terms, (_, value) = merge_axes(order, (as_expr(0), reduce.value))
    return terms, value


def slots(s: GpuReduce, t: GpuReduceTiling) -> tuple[int, tuple[Axis, ...]]:
    """The width of a thread along the output, and an axis of tile numbers for each of its axes."""
    width = t.width if t.along == ALONG_OUTPUTS else 1
    sizes = [-(-a.extent // width) if a is s.vector else a.extent for a in s.stage.axes]
    return width, tuple(Axis(a.name, n) for a, n in zip(s.stage.axes, sizes))
