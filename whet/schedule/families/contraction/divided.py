"""Contractions with divided columns: every range of them is finished and stored in its own way.

    s[i, j] = sum(a[i, k] * b[k, j] for k)      j in 176
    y[i, j] = relu(s[i, j] + p[j])              j in 64
    z[i, j] = s[i, j + 64]                      j in 112
        ->   one nest over 176 columns, in which a vector of sums becomes part of y or of z

So a product that stands for several has the epilogues of all of them, and each of their results
lies where its readers want it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import affine, substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, as_expr
from whet.ir.tensor import Compute, stages, subexpressions
from whet.schedule.families.contraction.match import ColumnRange, Contraction, contraction_along
from whet.schedule.families.contraction.price import contraction_holes
from whet.schedule.program.access import address_form, flatten_accesses, map_expr, memory_of
from whet.schedule.program.flat import (
    FlatStage,
    merge_axes,
    split_groups,
    summed_over_memory,
)
from whet.tasks.task import Task


@lru_cache(maxsize=16)
def find_divided(task: Task) -> Contraction | None:
    """The contraction whose columns the task's outputs share, or None."""
    inner = [t for t in stages(task.outputs) if isinstance(t, Compute) and t not in task.outputs]
    if len(task.outputs) < 2 or len(inner) != 1:
        return None
    (whole,) = inner
    places = [_place(output, whole) for output in task.outputs]
    axes = {axis for axis, _ in filter(None, places)}
    if None in places or len(axes) != 1:
        return None
    (number,) = axes
    starts = [place[1] for place in places if place is not None]
    if not _cover(whole.shape[number], starts, [t.shape[number] for t in task.outputs]):
        return None
    summed = summed_over_memory(whole, task)
    vector = whole.axes[number]
    if not isinstance(summed, Reduce) or vector.extent == 1:
        return None
    ranges = [_range(t, whole, summed, task, number, s) for t, s in zip(task.outputs, starts)]
    return _over_common_axes(task, whole, vector, ranges)


def _place(output: Compute, whole: Compute) -> tuple[int, int] | None:
    """The axis along which an output is a range of the whole, and where it starts.

    y[i, j] = relu(s[i, j + 64])   ->   1, 64         None where it reads anything else of it
    """
    reads = reads_of(output, whole)
    return shift_of(reads[0], output) if len(reads) == 1 else None


def reads_of(output: Compute, whole: Compute) -> list[Read]:
    """The different reads of one tensor in an expression of another."""
    found = (e for e in subexpressions(output.body) if isinstance(e, Read) and e.tensor is whole)
    return list(dict.fromkeys(found))


def shift_of(read: Read, output: Compute) -> tuple[int, int] | None:
    """The axis of which an output reads a part, and where that starts; None for other reads."""
    shape, shifted = read.tensor.shape, list[tuple[int, int]]()
    if len(shape) != len(output.axes):
        return None
    for number, (index, axis) in enumerate(zip(read.indices, output.axes)):
        if index is axis and axis.extent == shape[number]:
            continue
        form = affine(index)
        if form.terms != ((axis, 1),) and axis.extent > 1:
            return None
        if axis.extent != shape[number]:
            shifted.append((number, form.constant))
    return shifted[0] if len(shifted) == 1 else None


def _cover(extent: int, starts: Sequence[int], extents: Sequence[int]) -> bool:
    """True when ranges lie side by side and make up the extent."""
    ends = [start + size for start, size in zip(starts, extents)]
    return [*sorted(starts), extent] == [0, *sorted(ends)]


def _range(
    output: Compute, whole: Compute, summed: Expr, task: Task, number: int, start: int
) -> ColumnRange:
    """The output over the axes of the whole, which is summed over memory."""
    now: dict[Expr, Expr] = {
        own: as_expr(0) if own.extent == 1 and n != number else axis - (start if n == number else 0)
        for n, (own, axis) in enumerate(zip(output.axes, whole.axes))
    }
    replaced = map_expr(
        flatten_accesses(output, task),
        lambda e: summed if isinstance(e, Read) and e.tensor is whole else now.get(e),
    )
    address = substitute(address_form(task.buffers[output], output.axes).expr(), now)
    return ColumnRange(
        start, start + output.shape[number], memory_of(output, task), address, replaced
    )


def _over_common_axes(
    task: Task, whole: Compute, vector: Axis, ranges: Sequence[ColumnRange]
) -> Contraction | None:
    """The contraction over axes that are merged where the memory of every range allows it."""
    widest = max(range(len(ranges)), key=lambda n: ranges[n].end - ranges[n].start)
    form = affine(ranges[widest].address)
    axes: Sequence[Axis] = sorted(
        (a for a in whole.axes if a.extent > 1), key=lambda a: -form.coefficient(a)
    )
    exprs: tuple[Expr, ...] = (ranges[widest].address,)
    for r in ranges:
        exprs += (Read(r.target, (r.address,)), r.value)
    merged, (_, *found) = merge_axes(*split_groups(axes, exprs))
    if vector not in merged:
        return None
    moved = tuple(
        ColumnRange(r.start, r.end, r.target, _address(place), value)
        for r, place, value in zip(ranges, found[::2], found[1::2])
    )
    if any(affine(r.address).coefficient(vector) != 1 for r in moved):
        return None
    most = moved[widest]
    stage = FlatStage(merged, most.target, most.address, most.value)
    return contraction_along(task, stage, vector, moved)


def _address(place: Expr) -> Expr:
    assert isinstance(place, Read)
    return place.indices[0]


def divided_holes(c: Contraction, target: CpuTarget, threads: int) -> dict[str, Array]:
    """The tile sizes of which no vector lies in two ranges."""
    holes = contraction_holes(c, target, threads)
    ends = np.array([r.end for r in c.ranges])
    whole: Mapping[int, bool] = {
        int(lanes): not (ends % lanes).any() for lanes in np.unique(holes["lanes"])
    }
    kept = np.array([whole[int(lanes)] for lanes in holes["lanes"]], bool)
    return {name: column[kept] for name, column in holes.items()}
