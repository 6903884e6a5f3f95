"""Places: factors that are elements of memory, which copies bring without a thread's help.

x[8 * i + k]                                 x at 8 * i + k
select(0 <= i - 1, x[i - 1, k], 0)    ->     x at 8 * i + k - 8, where 0 <= i - 1
x[i, k] * s[i]                               none: threads compute it
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.dtypes import bool_
from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.bounds import Interval
from whet.ir.expr import Axis, Expr, Read, Select, Var, const
from whet.ir.program import Buffer
from whet.ir.simplify import simplify
from whet.ir.tensor import subexpressions
from whet.schedule.program.access import address_form, memory_of
from whet.tasks.guards import is_guard
from whet.tasks.task import Task

RUN_BYTES = (16, 8, 4)
"""What one copy can bring, the best first."""


@dataclass(frozen=True, eq=False)
class Place:
    """memory[address] where the condition holds, and zero elsewhere."""

    memory: Buffer
    indices: tuple[Expr, ...]
    condition: Expr

    @property
    def address(self) -> Expr:
        return address_form(self.memory, self.indices).expr()


def place_of(value: Expr, task: Task) -> Place | None:
    """The place of a factor over the memory of the task, or None if it must be computed."""
    if isinstance(value, Select) and is_guard(value):
        found = place_of(value.then, task)
        if found is None or _reads(value.condition):
            return None
        return Place(found.memory, found.indices, value.condition)
    if not isinstance(value, Read) or not isinstance(value.tensor, Buffer):
        return None
    if _reads(*value.indices):
        return None
    memory, indices = value.tensor, value.indices
    for tensor, buffer in task.buffers.items():
        if buffer is memory:  # under a condition, elements keep their indices
            memory = memory_of(tensor, task)
            indices = (address_form(buffer, indices).expr(),)
    return Place(memory, indices, const(True, bool_))


def _reads(*values: Expr) -> bool:
    return any(isinstance(e, Read) for e in subexpressions(*values))


def unit_axis(place: Place, axes: tuple[Axis, ...]) -> Axis | None:
    """The axis whose neighbours are neighbours in memory."""
    form = affine(place.address)
    return next((a for a in reversed(axes) if form.coefficient(a) == 1), None)


def run_of(place: Place, axis: Axis | None) -> int:
    """Elements along the axis that one copy can bring; 0 where none can.

    Runs begin at multiples of their length on the axis, and so they must in memory.
    """
    size = place.memory.dtype.itemsize
    lengths = [nbytes // size for nbytes in RUN_BYTES if nbytes >= size]
    return next((n for n in lengths if _may_run(place, axis, n)), 0)


def _may_run(place: Place, axis: Axis | None, length: int) -> bool:
    if length == 1:
        return True
    if axis is None or axis.extent % length:
        return False
    form = affine(place.address)
    if form.coefficient(axis) != 1 or form.constant % length:
        return False
    others = [(atom, factor) for atom, factor in form.terms if atom is not axis]
    if any(factor % length or axis in free_symbols(atom) for atom, factor in others):
        return False
    return _is_same(place.condition, axis, length)


def _is_same(condition: Expr, axis: Axis, length: int) -> bool:
    """Whether a condition is the same for all elements of a run."""
    if axis not in free_symbols(condition):
        return True
    run = Var("run")
    known: dict[Expr, Interval] = {run: Interval(0, axis.extent // length - 1)}
    first, *others = (
        simplify(substitute(condition, {axis: run * length + n}), known) for n in range(length)
    )
    return all(other is first for other in others)
