"""The end of attention as part of its last product.

    o[l, d] = sum(p[l, m] * v[m, d] for m)      y[l, d] = f32(o[l, d]) + r[l, d]
    ->  y[l, d] = f32(sum(p[l, m] * v[m, d] for m)) + r[l, d]

Groups of several sums keep all of them as stages of their own, also the last one.
"""

from __future__ import annotations

from dataclasses import replace

from whet.ir.affine import substitute
from whet.ir.expr import Expr, Read, Reduce
from whet.ir.tensor import Compute, read_tensors, stages, subexpressions
from whet.schedule.program.access import map_expr
from whet.tasks.task import Task


def with_end(task: Task) -> Task | None:
    """The task with its result computed where the last sum is; None if it is there already, or the
    sum is needed at other places than those of the result."""
    if len(task.outputs) != 1:
        return None
    (end,) = task.outputs
    before = [t for t in read_tensors(end.body) if isinstance(t, Compute)]
    if len(before) != 1 or any(isinstance(e, Reduce) for e in subexpressions(end.body)):
        return None
    (last,) = before
    readers = [s for s in stages(task.outputs)
               if isinstance(s, Compute) and last in read_tensors(s.body)]  # fmt: skip
    if last.shape != end.shape or readers != [end] or last in task.buffers:
        return None
    here = substitute(last.body, dict(zip(last.axes, end.axes)))

    def joined(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.tensor is last:
            return here if e.indices == end.axes else e
        return None

    made = Compute(end.name, end.axes, map_expr(end.body, joined))
    if last in read_tensors(made.body):
        return None
    buffers = {**task.buffers, made: task.buffers[end]}
    return replace(task, outputs=(made,), buffers=buffers)
