"""Stages over flat memory, with axes merged where memory allows.

    y[n, h, w, c] = relu(x[n, h, w, c])      (all contiguous)
        ->   y.flat[i] = relu(x.flat[i])     with one axis i

Two neighbouring axes merge when every address moves by the same amount for one step of the
outer axis as for a whole run of the inner one.  Fewer axes mean longer inner loops and fewer
divisions to find a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Binary, Const, Expr, Read, Reduce, as_expr
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, subexpressions
from whet.schedule.program.access import address_form, flatten_accesses, map_expr, memory_of
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class FlatStage:
    """target[address] = body for all positions on the axes, outermost axis first."""

    axes: tuple[Axis, ...]
    target: Buffer
    address: Expr
    body: Expr

    @property
    def reduces(self) -> tuple[Reduce, ...]:
        return tuple(e for e in subexpressions(self.body) if isinstance(e, Reduce))

    @property
    def vector(self) -> Axis | None:
        """The axis along which the output is contiguous."""
        form = affine(self.address)
        return next((a for a in reversed(self.axes) if form.coefficient(a) == 1), None)


@lru_cache(maxsize=16)
def flatten_stage(stage: Compute, task: Task, *, whole_groups: bool = False) -> FlatStage:
    """The stage over flat memory, its axes ordered by output stride and merged.

    Axes that also count groups are split into group and member unless `whole_groups` is set.
    """
    plain = unmerged_stage(stage, task)
    axes = list(plain.axes)
    exprs: tuple[Expr, ...] = (plain.address, plain.body)
    if not whole_groups:
        axes, exprs = split_groups(axes, exprs)
    merged, (address, body) = merge_axes(axes, exprs)
    return FlatStage(merged, plain.target, address, body)


@lru_cache(maxsize=16)  # every sketch asks for the stage of the same task
def unmerged_stage(stage: Compute, task: Task) -> FlatStage:
    """The stage over flat memory with the axes it has, ordered by output stride."""
    return stage_over_memory(stage, stage.body, task)


def stage_over_memory(stage: Compute, body: Expr, task: Task) -> FlatStage:
    """The stage with this body instead of its own, over flat memory."""
    output = task.buffers[stage]
    unit: dict[Expr, Expr] = {a: as_expr(0) for a in _all_axes(stage) if a.extent == 1}
    changed = Compute(stage.name, stage.axes, body)
    body = _drop_unit_axes(substitute(flatten_accesses(changed, task), unit))
    address = substitute(address_form(output, stage.axes).expr(), unit)
    form = affine(address)
    axes = sorted((a for a in stage.axes if a.extent > 1), key=lambda a: -form.coefficient(a))
    return FlatStage(tuple(axes), memory_of(stage, task), address, body)


def summed_over_memory(stage: Compute, task: Task) -> Expr:
    """The body of a stage that has no memory of its own, over that of what it reads."""
    unit: dict[Expr, Expr] = {a: as_expr(0) for a in _all_axes(stage) if a.extent == 1}
    return _drop_unit_axes(substitute(flatten_accesses(stage, task), unit))


def grouped_stage(stage: Compute, task: Task) -> FlatStage:
    """The unmerged stage with axes that also count groups split into group and member."""
    plain = unmerged_stage(stage, task)
    axes, (address, body) = split_groups(plain.axes, (plain.address, plain.body))
    return FlatStage(tuple(axes), plain.target, address, body)


def _all_axes(stage: Compute) -> tuple[Axis, ...]:
    reduced = [a for e in subexpressions(stage.body) if isinstance(e, Reduce) for a in e.axes]
    return (*stage.axes, *reduced)


def _drop_unit_axes(body: Expr) -> Expr:
    """Reductions without their axes of extent one (whose symbols are replaced already)."""

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Reduce) or e.kind.startswith("arg"):
            return None
        value = map_expr(e.value, change)
        axes = tuple(a for a in e.axes if a.extent > 1)
        return Reduce(e.kind, axes, value) if axes else value

    return map_expr(body, change)


def split_groups(
    axes: Sequence[Axis], exprs: tuple[Expr, ...]
) -> tuple[list[Axis], tuple[Expr, ...]]:
    """Axes of which expressions use the quotient by a divisor, split in two.

    w[o, c] * x[o // 4 * 8 + c]  (o in 32)   ->   w[4 * g + p, c] * x[8 * g + c]
    """
    done: list[Axis] = []
    for axis in axes:
        divisors = {
            int(e.right.value)
            for root in exprs
            for e in subexpressions(root)
            if isinstance(e, Binary)
            and e.op in ("floordiv", "mod")
            and e.left is axis
            and isinstance(e.right, Const)
        }
        by = divisors.pop() if len(divisors) == 1 else 0
        if by < 1 or axis.extent % by:
            done.append(axis)
            continue
        high, low = Axis(f"{axis.name}g", axis.extent // by), Axis(f"{axis.name}p", by)
        exprs = tuple(_split_axis(e, axis, high, low) for e in exprs)
        done += [a for a in (high, low) if a.extent > 1]
        ones: dict[Expr, Expr] = {a: as_expr(0) for a in (high, low) if a.extent == 1}
        exprs = tuple(substitute(e, ones) for e in exprs)
    return done, exprs


def _split_axis(root: Expr, axis: Axis, high: Axis, low: Axis) -> Expr:
    def change(e: Expr) -> Expr | None:
        if isinstance(e, Binary) and e.left is axis and e.op == "floordiv":
            return high
        if isinstance(e, Binary) and e.left is axis and e.op == "mod":
            return low
        return high * low.extent + low if e is axis else None

    return map_expr(root, change)


def merge_axes(
    axes: Sequence[Axis], exprs: tuple[Expr, ...]
) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
    """Neighbouring axes merged wherever all addresses in the expressions allow it.

    The first expression is an address itself; in the others, addresses are the indices of
    one-dimensional reads.
    """
    done: list[Axis] = []
    for axis in axes:
        if done:
            outer = done[-1]
            if all(_can_merge(e, outer, axis, is_address=n == 0) for n, e in enumerate(exprs)):
                both = Axis(f"{outer.name}{axis.name}", outer.extent * axis.extent, axis.role)
                exprs = tuple(substitute(e, {outer: as_expr(0), axis: both}) for e in exprs)
                done[-1] = both
                continue
        done.append(axis)
    return tuple(done), exprs


def _can_merge(e: Expr, outer: Axis, inner: Axis, *, is_address: bool) -> bool:
    if is_address:
        return _address_agrees(e, outer, inner)
    stack = [e]
    seen: set[Expr] = set()
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x is outer or x is inner:
            return False
        if isinstance(x, Read) and len(x.indices) == 1:
            if not _address_agrees(x.indices[0], outer, inner):
                return False
            continue
        stack.extend(x.children())
    return True


def _address_agrees(address: Expr, outer: Axis, inner: Axis) -> bool:
    form = affine(address)
    if form.coefficient(outer) != form.coefficient(inner) * inner.extent:
        return False
    others = (atom for atom, _ in form.terms if atom is not outer and atom is not inner)
    return not any({outer, inner} & free_symbols(atom) for atom in others)
