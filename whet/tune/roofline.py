"""The least time that a task can take: its arithmetic at full speed, or its data moved once."""

from __future__ import annotations

import math

from whet.core.target import Target
from whet.ir.expr import Binary, Call, Expr, Reduce
from whet.ir.tensor import Compute, stages, subexpressions
from whet.schedule.cost.work import terms
from whet.tasks.task import Task


def roofline_seconds(task: Task, target: Target, threads: int) -> float:
    """The larger of the two, for the algorithm as it is written.

    Other algorithms (Winograd) do less arithmetic and can be faster than this.
    """
    nbytes = sum(tensor.type.nbytes for tensor in (*task.inputs, *task.outputs))
    return target.roofline(arithmetic(task), nbytes, threads)


def arithmetic(task: Task) -> float:
    """Operations of all stages, where one that is no part of a multiply-add counts as two.

    max(sum(a[i, k] * b[k, j] for k in 8) * 0.5 + c[j], 0)  ->  2 * (8 + 1 + 1) per element

    It takes the place of a multiply-add: no processor does more of it in the same time.  A
    function counts as one operation, and what finds out where an element lies as none.
    """
    total = 0.0
    for stage in stages(task.outputs):
        if isinstance(stage, Compute):
            reduces = [e for e in subexpressions(stage.body) if isinstance(e, Reduce)]
            terms_of = sum(math.prod(a.extent for a in e.axes) * _steps(e) for e in reduces)
            total += 2.0 * stage.type.size * (terms_of + _operations(stage.body))
    return total


def _steps(reduce: Reduce) -> int:
    """Operations that add one term of a reduction."""
    value = reduce.value
    fused = reduce.kind == "sum" and isinstance(value, Binary) and value.op == "mul"
    return _operations(value) + (0 if fused else 1)


def _operations(e: Expr) -> int:
    """Operations on floating-point values outside of reductions; a multiply-add is one."""
    if isinstance(e, Reduce):
        return 0
    total = 0
    for x in terms(e):
        if not x.dtype.is_float or not isinstance(x, (Binary, Call)):
            continue
        parts = (x.left, x.right) if isinstance(x, Binary) and x.op in ("add", "sub") else ()
        fused = any(isinstance(y, Binary) and y.op == "mul" for y in parts)
        total += 0 if fused else 1
    return total
