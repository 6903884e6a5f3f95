"""Memory accesses of a stage: addresses instead of indices, guards dropped where memory helps.

select(0 <= h + r - 1 and h + r - 1 < 56, x[c, h + r - 1], 0)   (x stored with a border of 1)
    ->   x.flat[58 * c + h + r]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from whet.ir.affine import Affine, affine, combine, interval, rebuild
from whet.ir.expr import Axis, Expr, Read, Reduce, Select
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Tensor, subexpressions
from whet.tasks.guards import conjuncts, is_bounds_check, is_guard
from whet.tasks.task import Border, Task


def map_expr(e: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with sub-expressions replaced, from the root down.

    `change` gives the replacement, or None to look inside.
    """
    memo: dict[Expr, Expr] = {}

    def visit(x: Expr) -> Expr:
        if x not in memo:
            changed = change(x)
            if changed is None:
                changed = x if not x.children() else rebuild(x, [visit(c) for c in x.children()])
            memo[x] = changed
        return memo[x]

    return visit(e)


def extents_of(stage: Compute) -> dict[Expr, int]:
    """The extents of all axes that the stage mentions."""
    found: dict[Expr, int] = {axis: axis.extent for axis in stage.axes}

    def note(e: Expr) -> None:
        if isinstance(e, Axis):
            found[e] = e.extent

    map_expr(stage.body, lambda e: note(e))
    return found


@lru_cache(maxsize=128)  # every sketch asks for the stages of the same task
def flatten_accesses(stage: Compute, task: Task) -> Expr:
    """The body with every boundary read as a read of flat memory.

    Reads that need the condition they stand under keep their indices, so that code generation
    can clamp them, and so do those whose place depends on data; all others are reads of a
    one-dimensional buffer at a linear address.
    """
    extents = extents_of(stage)

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Select):
            needless = guard_is_needless(e, task, extents)
            return change(e.then) if needless else map_expr(e, under_condition)
        if isinstance(e, Read) and e.tensor in task.buffers:
            buffer = task.buffers[e.tensor]
            # An index may itself be read from memory (a gather); then it must be checked.
            indices = tuple(map_expr(i, change) for i in e.indices)
            if any(isinstance(x, Read) for i in indices for x in subexpressions(i)):
                return Read(buffer, indices)
            return Read(memory_of(e.tensor, task), (address_form(buffer, indices).expr(),))
        return None

    def under_condition(e: Expr) -> Expr | None:
        if isinstance(e, Reduce):
            # Computed in any case, before something chooses between its uses.
            return map_expr(e, change)
        if isinstance(e, Read) and stays_within(e, ((0, 0),) * len(e.indices), extents):
            return change(e)
        return keep_indices(e, task)

    return map_expr(stage.body, change)


def keep_indices(e: Expr, task: Task) -> Expr | None:
    """A read of the boundary as a read of its buffer, indices unchanged; None for the rest."""
    if isinstance(e, Read) and e.tensor in task.buffers:
        inner = tuple(map_expr(i, lambda x: keep_indices(x, task)) for i in e.indices)
        return Read(task.buffers[e.tensor], inner)
    return None


def address_form(buffer: Buffer, indices: tuple[Expr, ...]) -> Affine:
    """The element address as a linear form over axes."""
    strides = buffer.element_strides
    return combine([(affine(i), s) for i, s in zip(indices, strides)], buffer.offset)


def memory_of(tensor: Tensor, task: Task) -> Buffer:
    """The memory behind a boundary tensor, zeros around it included, as one long row."""
    return flat_buffer(task.buffers[tensor], task.borders.get(tensor))


def flat_buffer(buffer: Buffer, border: Border | None = None) -> Buffer:
    """The memory behind a buffer, up to its last element or zero, as one long row.

    x: f32[14, 14], strides (16, 1), offset 17, border 1   ->   x: f32[256]
    x: f32[4], strides (-1,), offset 3                     ->   x: f32[4]
    """
    after = [high for _, high in border] if border else [0] * len(buffer.shape)
    steps = zip(buffer.shape, after, buffer.element_strides)
    reach = buffer.offset + sum(max((d - 1 + high) * s, 0) for d, high, s in steps)
    return Buffer(buffer.name, (max(reach + 1, 1),), buffer.dtype)


def reads_constants_alone(e: Expr, task: Task) -> bool:
    """True when all that an expression over memory reads is known when the kernel is built."""
    constants = [t for t in task.constants if t in task.buffers]
    known = {b for t in constants for b in (task.buffers[t], memory_of(t, task))}
    return all(x.tensor in known for x in subexpressions(e) if isinstance(x, Read))


def bordered_buffer(buffer: Buffer, border: Border) -> Buffer:
    """A buffer together with the zeros around it in memory: element 0 is the first zero.

    x: f32[14, 14] with a border of 1   ->   x: f32[16, 16], x[i, j] being x[i + 1, j + 1] there
    """
    strides = buffer.element_strides
    shape = tuple(low + extent + high for extent, (low, high) in zip(buffer.shape, border))
    first = buffer.offset - sum(low * step for (low, _), step in zip(border, strides))
    return Buffer(buffer.name, shape, buffer.dtype, strides, first)


def guard_is_needless(e: Select, task: Task, extents: dict[Expr, int]) -> bool:
    """True for a bounds check whose failing side reads zeros that memory holds anyway."""
    read = e.then
    if not (isinstance(read, Read) and is_guard(e)):
        return False
    if not all(is_bounds_check(c, read) for c in conjuncts(e.condition)):
        return False
    return stays_within(read, border_of(read.tensor, task), extents)


def stays_within(read: Read, border: Border, extents: dict[Expr, int]) -> bool:
    """True when no index can leave the tensor by more than the border."""
    for index, extent, (low, high) in zip(read.indices, read.tensor.shape, border):
        bounds = interval(index, extents)
        if bounds is None or bounds[0] < -low or bounds[1] >= extent + high:
            return False
    return True


def border_of(tensor: Tensor, task: Task) -> Border:
    return task.borders.get(tensor, ((0, 0),) * tensor.rank)
