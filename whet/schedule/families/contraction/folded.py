"""Contractions with folded columns: each result is made of the sums of several columns.

    s[i, j] = sum(a[i, k] * b[k, j] for k)              j in 128
    y[i, j] = s[i, j] * sigmoid(s[i, j]) * s[i, j + 64]    j in 64
        ->   tiles of which half the vectors are columns j and half are columns j + 64

Gated layers are such: what the gate and what it lets through are one product, no sum is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import affine, substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, as_expr
from whet.ir.tensor import Compute, stages
from whet.schedule.families.contraction.divided import reads_of, shift_of
from whet.schedule.families.contraction.match import Contraction, Fold, contraction_along
from whet.schedule.families.contraction.price import contraction_holes
from whet.schedule.program.access import address_form, flatten_accesses, map_expr, memory_of
from whet.schedule.program.flat import FlatStage, merge_axes, split_groups, summed_over_memory
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import Statement
from whet.tasks.task import Task


@lru_cache(maxsize=16)
def find_folded(task: Task) -> Contraction | None:
    """The contraction whose columns the task's one output folds, or None.

    Its other factor must be constant: that is stored in the order in which tiles read it.
    """
    inner = [t for t in stages(task.outputs) if isinstance(t, Compute) and t not in task.outputs]
    if len(task.outputs) != 1 or len(inner) != 1:
        return None
    (output,), (whole,) = task.outputs, inner
    places = {read: shift_of(read, output) for read in reads_of(output, whole)}
    if len(places) < 2 or None in places.values():
        return None
    reads = sorted(places, key=lambda read: places[read] or (0, 0))
    number, _ = places[reads[0]] or (0, 0)
    extent = output.shape[number]
    if any(places[read] != (number, n * extent) for n, read in enumerate(reads)):
        return None
    if whole.shape[number] != len(reads) * extent:
        return None
    return _over_common_axes(task, output, whole, number, reads)


def _over_common_axes(
    task: Task, output: Compute, whole: Compute, number: int, reads: Sequence[Read]
) -> Contraction | None:
    """The contraction over axes that are merged where the memory of the output allows it."""
    summed = summed_over_memory(whole, task)
    if not isinstance(summed, Reduce):
        return None
    sums = tuple(Var(f"sum{n}", summed.dtype) for n in range(len(reads)))
    named: Mapping[Expr, Expr] = dict(zip(reads, sums))
    marked = Compute(output.name, output.axes, map_expr(output.body, named.get))
    own, vector = output.axes[number], whole.axes[number]
    # The column of results is another symbol than the column of sums.
    column = Axis(f"{own.name}f", own.extent)
    now: dict[Expr, Expr] = {
        axis: as_expr(0) if axis.extent == 1 else other
        for axis, other in zip(output.axes, whole.axes)
    }
    now[own] = column
    value = substitute(flatten_accesses(marked, task), now)
    address = substitute(address_form(task.buffers[output], output.axes).expr(), now)
    form = affine(address)
    axes = sorted((a for a in whole.axes if a.extent > 1), key=lambda a: -form.coefficient(a))
    target = memory_of(output, task)
    exprs = (address, summed, Read(target, (address,)), value)
    merged, (address, product, _, value) = merge_axes(*split_groups(axes, exprs))
    if vector not in merged or affine(address).coefficient(column) != 1:
        return None
    stage = FlatStage(merged, target, substitute(address, {column: vector}), product)
    made = contraction_along(task, stage, vector, fold=Fold(column, address, value, sums))
    return made if made is not None and made.b_is_constant else None


def folded_holes(c: Contraction, target: CpuTarget, threads: int) -> dict[str, Array]:
    """The tile sizes with as many vectors of each of the columns that are folded."""
    assert c.fold is not None
    count = len(c.fold.sums)
    holes = contraction_holes(c, target, threads)
    fits = holes["nv"] * holes["lanes"] <= count * c.fold.column.extent
    kept = (holes["nv"] % count == 0) & fits
    return {name: column[kept] for name, column in holes.items()}


def folded_nests(
    c: Contraction, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """None in closed form: programs say them."""
    return ()
