"""The sketch of stages along rows on GPUs: softmax, normalizations, norms.

    thread t of a row's `lanes`; element (n * lanes + t) * width + v of the row is its own
    kept[n, v] = scale[element]                 constants, in registers
    await inputs
    kept[n, v] = x[row, element]                what else stages read, once, in registers
    for each stage in order:
      a reduction:    acc[v] over the thread's elements, then across the threads of the row:
                      lanes of a warp exchange their sums, warps leave theirs in shared memory,
                      and where few rows are long, blocks of a cluster share one and read each
                      other's totals
      element-wise:   line[n, v], in registers, and stored if it is a result
      a number:       the same in every thread of the row

All stages share their leading axes (the rows), go over the same elements of a row and read each
other at the element that they compute.  Rows of more elements than registers hold are read again
by every stage, and what is element-wise is computed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from whet.core.types import Shape
from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Select, as_expr, elements
from whet.ir.tensor import Compute, Placeholder, Tensor, subexpressions
from whet.schedule.families.rows.match import Rows, find_rows
from whet.schedule.program.access import address_form, flatten_accesses, map_expr, memory_of
from whet.schedule.program.flat import merge_axes
from whet.schedule.program.triggers import NEVER
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class RowStage:
    """A stage over the common axes.

    Reads of earlier stages are reads of a mark, which stands for the element or the number of the
    row that is computed.
    """

    stage: Compute
    mark: Placeholder
    body: Expr
    address: Expr | None
    """Its place in memory, where it is a result."""
    is_line: bool
    """Whether it has a value for every element of the row."""

    @property
    def reduces(self) -> tuple[Reduce, ...]:
        return tuple(e for e in subexpressions(self.body) if isinstance(e, Reduce))


@dataclass(frozen=True, eq=False)
class GpuRows:
    """A task of stages over the same elements of common rows."""

    task: Task
    stages: tuple[RowStage, ...]
    rows: tuple[Axis, ...]
    elements: tuple[Axis, ...]
    """Axes of a row, as few as memory allows, the one with neighbours last."""
    reads: tuple[Read, ...]
    """All that stages read of inputs whatever else they find."""
    shared: tuple[Read, ...]
    """Elements among them that several stages read."""

    @property
    def length(self) -> int:
        return elements(self.elements)


@dataclass(frozen=True)
class GpuRowTiling:
    """The holes: threads of a row in a block, elements that each takes at once, threads of a
    block, the trigger, and blocks of a cluster that share a row.

    The threads of a row are a power of two within a warp, or whole warps.
    """

    lanes: int
    width: int
    threads: int
    trigger: int = NEVER
    ranks: int = 1


def find_gpu_rows(task: Task) -> GpuRows | None:
    """The task as stages over the same elements of common rows, or None."""
    found = find_rows(task)
    return None if found is None else rows_on_gpu(found)


def rows_on_gpu(found: Rows) -> GpuRows | None:
    """Stages along rows, some of which reduce them, if all go over the same elements."""
    if not any(_reduces(stage) for stage in found.stages):
        return None
    task = found.task
    shape = _row_shape(found.stages, found.row_rank)
    if not shape:
        return None  # stages that differ, or rows of one element
    rows = tuple(Axis(f"row{n}", extent) for n, extent in enumerate(found.row_shape))
    inner = tuple(Axis(f"e{n}", extent) for n, extent in enumerate(shape))
    made: list[RowStage] = []
    for stage in found.stages:
        written = _canonical(stage, task, made, rows, inner)
        if written is None:
            return None
        made.append(written)
    merged, stages = _merged(made, inner, task)
    count = _readers(stages)
    shared = tuple(e for e, n in count.items() if n > 1 and free_symbols(e) & set(merged))
    return GpuRows(task, stages, rows, merged, tuple(count), shared)


def _reduces(stage: Compute) -> list[Reduce]:
    return [e for e in subexpressions(stage.body) if isinstance(e, Reduce)]


def _row_shape(found: Sequence[Compute], rank: int) -> Shape | None:
    """The extents of a row's elements, if all stages go over the same."""
    shapes = {_extents(r.axes) for stage in found for r in _reduces(stage)}
    shapes |= {_extents(s.axes[rank:]) for s in found if elements(s.axes[rank:]) > 1}
    return shapes.pop() if len(shapes) == 1 else None


def _extents(axes: Sequence[Axis]) -> Shape:
    return tuple(a.extent for a in axes if a.extent > 1)


def _canonical(
    stage: Compute, task: Task, earlier: Sequence[RowStage], rows: Sequence[Axis],
    inner: Sequence[Axis],
) -> RowStage | None:  # fmt: skip
    """The stage over the common axes; None if it reads an earlier one at another element."""
    own = stage.axes[len(rows) :]
    is_line = elements(own) > 1
    axes = [own, *(r.axes for r in _reduces(stage))]
    env: dict[Expr, Expr] = dict(zip(stage.axes, rows))
    env |= {a: as_expr(0) for group in (stage.axes, *axes) for a in group if a.extent == 1}
    for group in axes:
        env |= dict(zip([a for a in group if a.extent > 1], inner))
    marks: Mapping[Tensor, RowStage] = {s.stage: s for s in earlier}
    strays = False

    def marked(e: Expr) -> Expr | None:
        nonlocal strays
        if not (isinstance(e, Read) and e.tensor in marks):
            return None
        source = marks[e.tensor]
        at = [substitute(i, env) for i in e.indices[len(rows) :]]
        moving = [i for i, extent in zip(at, source.stage.shape[len(rows) :]) if extent > 1]
        strays |= source.is_line and moving != list(inner)
        return Read(source.mark, ())

    local = Compute(stage.name, stage.axes, map_expr(stage.body, marked))
    if strays:
        return None
    body = substitute(flatten_accesses(local, task), env)
    address = None
    if stage in task.buffers:
        address = substitute(address_form(task.buffers[stage], stage.axes).expr(), env)
    return RowStage(stage, Placeholder(stage.name, (), stage.dtype), body, address, is_line)


def _merged(
    found: Sequence[RowStage], inner: Sequence[Axis], task: Task
) -> tuple[tuple[Axis, ...], tuple[RowStage, ...]]:
    """The stages over as few axes of elements as memory allows, in its order."""
    stored = [s for s in found if s.address is not None]
    places = [Read(memory_of(s.stage, task), (s.address,)) for s in stored if s.address is not None]
    forms = [affine(p.indices[0]) for p in places]
    order = sorted(inner, key=lambda a: -max((f.coefficient(a) for f in forms), default=0))
    exprs = (as_expr(0), *(s.body for s in found), *places)
    axes, (_, *changed) = merge_axes(order, exprs)
    addresses = {
        s.stage: p.indices[0] for s, p in zip(stored, changed[len(found) :]) if isinstance(p, Read)
    }
    stages = tuple(
        RowStage(s.stage, s.mark, body, addresses.get(s.stage), s.is_line)
        for s, body in zip(found, changed)
    )
    return axes, stages


def _readers(found: Sequence[RowStage]) -> Counter[Read]:
    """What stages read of inputs whatever else they find, with the number of those that do."""
    marks = {Read(s.mark, ()) for s in found}
    count: Counter[Read] = Counter()
    for stage in found:
        count.update(list(dict.fromkeys(_always_read(stage.body))))
    return Counter({e: n for e, n in count.items() if not marks & set(subexpressions(e))})


def _always_read(e: Expr) -> Iterator[Read]:
    """The reads outside of choices, which may hold where a read would be out of bounds."""
    if isinstance(e, Read):
        yield e
    elif not isinstance(e, Select):
        for child in e.children():
            yield from _always_read(child)
