"""Sums over whole runs, where the memory of a factor is filled up with zeros.

sum(x[4 * i + c] * w[c] for c in 3)   ->   sum(x[4 * i + c] * select(c < 3, w[c], 0) for c in 4)

x[4 * i + 3] is part of the border of x, so that the fourth term is zero; and four neighbours can be
brought by one copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.affine import affine, substitute
from whet.ir.expr import Axis, Expr, select
from whet.schedule.families.gpu_contraction.place import RUN_BYTES, Place
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Sum:
    """a * b, summed over the axes."""

    a: Expr
    b: Expr
    axes: tuple[Axis, ...]


def in_whole_runs(found: Sum, place: Place, task: Task) -> Sum:
    """The sum over all that lies in the rows of a, zeros included; as it is where there are none.

    b is constant: that it is zero there costs nothing.
    """
    *others, last = found.axes
    whole = last.extent + _zeros_behind(place, last, task)
    longest = RUN_BYTES[0] // place.memory.dtype.itemsize
    run = next((n for n in (longest, longest // 2) if n > 1 and whole % n == 0), 1)
    if whole == last.extent or run == 1 or last.extent % run == 0:
        return found
    longer = Axis(last.name, whole, last.role)
    here: dict[Expr, Expr] = {last: longer}
    b = select(longer < last.extent, substitute(found.b, here), 0)
    return Sum(substitute(found.a, here), b, (*others, longer))


def _zeros_behind(place: Place, axis: Axis, task: Task) -> int:
    """Zeros behind every row along the axis, if the factor is read along whole rows."""
    tensors = [t for t in task.inputs if t.name == place.memory.name]
    border = task.borders.get(tensors[0]) if tensors else None
    if border is None or affine(place.address).coefficient(axis) != 1:
        return 0
    (tensor,) = tensors
    strides = task.buffers[tensor].element_strides
    rows = [n for n, s in enumerate(strides) if s == 1 and tensor.shape[n] == axis.extent]
    return border[rows[0]][1] if len(rows) == 1 else 0
