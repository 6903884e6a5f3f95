"""Phases: a sum whose terms depend on a remainder is several plain sums.

In a transposed convolution a kernel position counts only where the stride divides a distance:

    y[m] = sum(select((m + 1 - k) % 2 == 0 and 0 <= (m + 1 - k) // 2 and (m + 1 - k) // 2 < 4,
                      x[(m + 1 - k) // 2] * w[k], 0.0) for k in 4)          (m in 8)

With m = 2 * q + r the remainder depends on r and k alone.  For each r some k remain, at equal
distances; quotients become linear; and what is left of the condition protects one factor:

    y[2 * q]     = sum(select(0 <= q + k - 1, x[q + k - 1], 0.0) * w[3 - k * 2] for k in 2)
    y[2 * q + 1] = sum(select(q + k < 4, x[q + k], 0.0) * w[2 - k * 2] for k in 2)

Each phase is a contraction like any other, with its output at every second place in memory.  Where
all have equally many terms, r can stay a variable, and they are one contraction with an axis more:

    y[2 * q + r] = sum(select(0 <= q + r + k - 1 and q + r + k - 1 < 4, x[q + r + k - 1], 0.0)
                       * w[3 - r - k * 2] for k in 2)

Moving the condition to one factor multiplies zero by the other, as zero padding does everywhere
else; results would differ where that other factor is infinite or not a number, so such constants
leave a sum as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from operator import mul

from whet.core.types import Shape
from whet.ir.affine import Affine, affine, free_symbols, rebuild, substitute
from whet.ir.bounds import FALSE, TRUE, bounds
from whet.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    all_of,
    as_expr,
    const,
    select,
)
from whet.ir.simplify import simplify
from whet.ir.tensor import Compute, reduce as reduction, subexpressions
from whet.tasks.guards import conjuncts, is_bounds_check, is_guard, zero_annihilates

MAX_PHASES = 64
"""More phases than this would be more code than they save time."""


@dataclass(frozen=True, eq=False)
class Phase:
    """A part of a stage, or all phases as one: a step on its axis n is `steps[n]` steps on the
    stage's axis `along[n]`, beginning at `starts`."""

    stage: Compute
    starts: Shape
    steps: Shape
    along: Shape


def split_phases(stage: Compute) -> tuple[Phase, ...]:
    """The parts that together compute the stage; the stage itself if it has no guarded sums."""
    sums = _guarded_sums(stage.body)
    if not sums:
        rank = len(stage.axes)
        return (Phase(stage, (0,) * rank, (1,) * rank, tuple(range(rank))),)
    steps = _periods(stage, sums)
    starts = product(*(range(min(p, axis.extent)) for p, axis in zip(steps, stage.axes)))
    return tuple(_phase(stage, start, steps) for start in starts)


def join_phases(stage: Compute) -> Phase | None:
    """All phases as one stage whose first axes are the remainders; None where there is one phase
    only, or their sums have not equally many terms."""
    sums = _guarded_sums(stage.body)
    steps = _periods(stage, sums)
    split = [n for n, step in enumerate(steps) if step > 1]
    if not split or any(axis.extent % step for axis, step in zip(stage.axes, steps)):
        return None
    remainders = [Axis(f"r{n}", steps[n]) for n in split]
    wholes = [Axis(axis.name, axis.extent // step) for axis, step in zip(stage.axes, steps)]
    here: dict[Expr, Expr] = {
        stage.axes[n]: wholes[n] * steps[n] + r for n, r in zip(split, remainders)
    }
    here.update((stage.axes[n], wholes[n]) for n in range(len(steps)) if n not in split)
    body = substitute(stage.body, here)
    plain: dict[Expr, Expr] = {}
    for e in _guarded_sums(body):
        joined = _joined_sum(e, remainders)
        if joined is None:
            return None
        plain[e] = joined
    made = Compute(stage.name, (*remainders, *wholes), substitute(body, plain))
    along = (*split, *range(len(steps)))
    return Phase(made, (0,) * len(steps), (*(1 for _ in split), *steps), along)


def _guarded_sums(body: Expr) -> list[Reduce]:
    """Sums of select(condition, value, 0) where the value is a product of elements."""
    return [
        e
        for e in subexpressions(body)
        if isinstance(e, Reduce) and e.kind == "sum" and _is_guarded_product(e.value)
    ]


def _is_guarded_product(e: Expr) -> bool:
    if not (isinstance(e, Select) and is_guard(e)):
        return False
    return not isinstance(e.then, Read) and _is_product(e.then) and zero_annihilates(e.then)


def _is_product(e: Expr) -> bool:
    """True for elements and their products; other formulas may be infinite where none counts."""
    match e:
        case Binary(op="mul", left=left, right=right):
            return _is_product(left) and _is_product(right)
        case Cast(value=inner):
            return _is_product(inner)
        case Select(then=then):
            return is_guard(e) and _is_product(then)
    return isinstance(e, (Read, Const))


def _periods(stage: Compute, sums: Sequence[Reduce]) -> Shape:
    """For each axis, after how many steps all remainders are the same again."""
    found = [1] * len(stage.axes)
    for e in sums:
        for form, divisor, _ in _remainder_tests(e.value):
            for n, axis in enumerate(stage.axes):
                period = divisor // math.gcd(divisor, form.coefficient(axis))
                found[n] = math.lcm(found[n], period)
    return tuple(found) if math.prod(found) <= MAX_PHASES else (1,) * len(found)


def _remainder_tests(e: Expr) -> Iterator[tuple[Affine, int, int]]:
    """form, divisor and wanted remainder of the tests `form % divisor == wanted` of a guard."""
    assert isinstance(e, Select)
    for test in conjuncts(e.condition):
        match test:
            case Binary(op="eq", left=Binary(op="mod", left=inner, right=Const(value=divisor)),
                        right=Const(value=wanted)) if divisor > 0:  # fmt: skip
                yield affine(inner), int(divisor), int(wanted)


def _phase(stage: Compute, starts: Shape, steps: Shape) -> Phase:
    """The part of the stage at the given starts, its sums without the terms that are zero."""
    axes = []
    here: dict[Expr, Expr] = {}
    for axis, start, step in zip(stage.axes, starts, steps):
        axes.append(Axis(axis.name, -(-(axis.extent - start) // step)))
        if step > 1:
            here[axis] = axes[-1] * step + start
    body = substitute(stage.body, here)
    plain: dict[Expr, Expr] = {e: _plain_sum(e) for e in _guarded_sums(body)}
    made = Compute(stage.name, tuple(axes), substitute(body, plain))
    return Phase(made, starts, steps, tuple(range(len(steps))))


# ----------------------------------------------------------------------------- one guarded sum
def _plain_sum(e: Reduce) -> Expr:
    """The sum over those terms alone that the remainders leave."""
    axes: list[Axis] = []
    env: dict[Expr, Expr] = {}
    for axis in e.axes:
        kept = _kept_positions(axis, e.value)
        if not kept:
            return const(0, e.dtype)
        if len(kept) == 1:
            env[axis] = as_expr(kept[0])
            continue
        axes.append(Axis(axis.name, len(kept), "R"))
        env[axis] = axes[-1] * (kept[1] - kept[0]) + kept[0]
    value, axes = _without_determined(_tidy(substitute(e.value, env)), axes)
    return _sum_forwards(value, axes)


def _sum_forwards(value: Expr, axes: Sequence[Axis]) -> Expr:
    """The sum over axes along which memory is read forwards."""
    backwards = {a: a.extent - 1 - a for a in axes if _runs_back(a, value)}
    value = _tidy(substitute(value, backwards)) if backwards else value
    return value if isinstance(value, Const) else reduction("sum", value, *axes)


def _joined_sum(e: Reduce, remainders: Sequence[Axis]) -> Expr | None:
    """The sum over the terms that any remainders leave; None where they do not leave the same
    number of terms, or quotients are left that are not linear."""
    axes: list[Axis] = []
    env: dict[Expr, Expr] = {}
    for axis in e.axes:
        kept = _kept_by_all(axis, e.value, remainders)
        if kept is None:
            return None
        count, distance, first = kept
        axes.append(Axis(axis.name, count, "R"))
        env[axis] = axes[-1] * distance + first
    value = _tidy(substitute(e.value, env))
    if any(_divides(x, {*remainders, *axes}) for x in subexpressions(value)):
        return None
    return _sum_forwards(value, [a for a in axes if a.extent > 1] or axes[:1])


def _divides(e: Expr, axes: set[Axis]) -> bool:
    """True for quotients and remainders of positions on the axes."""
    return (
        isinstance(e, Binary)
        and e.op in ("mod", "floordiv")
        and not axes.isdisjoint(free_symbols(e))
    )


def _kept_by_all(
    axis: Axis, guarded: Expr, remainders: Sequence[Axis]
) -> tuple[int, int, Expr] | None:
    """The number of positions on a reduced axis that count for any remainders, their distance, and
    the first one, which is linear in the remainders."""
    every = list(product(*(range(r.extent) for r in remainders)))
    found = []
    for numbers in every:
        here: dict[Expr, Expr] = dict(zip(remainders, map(as_expr, numbers)))
        found.append(_kept_positions(axis, substitute(guarded, here)))
    count = len(found[0])
    if count == 0 or any(len(kept) != count for kept in found):
        return None
    distances = {kept[1] - kept[0] for kept in found} if count > 1 else {1}
    if len(distances) > 1:
        return None
    firsts = dict(zip(every, (kept[0] for kept in found)))
    origin = firsts[(0,) * len(remainders)]
    units = [tuple(int(n == m) for m in range(len(remainders))) for n in range(len(remainders))]
    slopes = [firsts[unit] - origin for unit in units]
    if any(first != origin + sum(map(mul, slopes, at)) for at, first in firsts.items()):
        return None
    start: Expr = as_expr(origin)
    for slope, remainder in zip(slopes, remainders):
        start = start + remainder * slope
    return count, distances.pop(), start


def _kept_positions(axis: Axis, guarded: Expr) -> list[int]:
    """The positions on a reduced axis that pass all tests of remainders; equally spaced."""
    kept = list(range(axis.extent))
    for form, divisor, wanted in _remainder_tests(guarded):
        step = form.coefficient(axis)
        if step and all(a is axis or c % divisor == 0 for a, c in form.terms):
            kept = [k for k in kept if (step * k + form.constant) % divisor == wanted]
    return kept


def _without_determined(value: Expr, axes: list[Axis]) -> tuple[Expr, list[Axis]]:
    """The value without the reduced axes for which only one position counts.

    select(0 <= m - k and m - k < 1, x[m - k] * w[k], 0)   ->   x[0] * w[m]
    """
    for axis in axes:
        position = _determined(axis, value)
        if position is not None:
            inside = select((as_expr(0) <= position) & (position < axis.extent),
                            substitute(value, {axis: position}), const(0, value.dtype))  # fmt: skip
            return _without_determined(_tidy(inside), [a for a in axes if a is not axis])
    return value, axes


def _determined(axis: Axis, value: Expr) -> Expr | None:
    """The position on the axis that alone passes tests 0 <= form and form < 1."""
    tests = [t for e in subexpressions(value) if isinstance(e, Select) and is_guard(e)
             for t in conjuncts(e.condition)]  # fmt: skip
    for test in tests:
        match test:
            case Binary(op="lt", left=left, right=Const(value=1)):
                form = affine(left)
                sign = form.coefficient(axis)
                linear = all(isinstance(a, Axis) for a, _ in form.terms)
                not_negative = (as_expr(0) <= left) in tests or bounds(left).low >= 0
                if abs(sign) == 1 and linear and not_negative:
                    return _simple(axis - left * sign)
    return None


def _runs_back(axis: Axis, value: Expr) -> bool:
    """True when guarded reads go backwards in memory as the axis goes forward."""
    guarded = [e.then for e in subexpressions(value) if isinstance(e, Select) and is_guard(e)]
    steps = [affine(i).coefficient(axis) for r in guarded if isinstance(r, Read) for i in r.indices]
    return min(steps, default=0) < 0 and max(steps) <= 0


# -------------------------------------------------------------------------------------- guards
@lru_cache(maxsize=4096)
def _simple(e: Expr) -> Expr:
    """The simplified expression; phases share most of their indices."""
    return simplify(e)


def _tidy(e: Expr) -> Expr:
    """Indices simplified, tests that hold dropped, the others moved to what they protect.

    Both sides of a test are simplified like the indices, so it can still be recognised as a
    bounds check of one of them.
    """
    if isinstance(e, Read):
        return Read(e.tensor, tuple(_simple(i) for i in e.indices))
    if not (isinstance(e, Select) and is_guard(e)):
        return rebuild(e, [_tidy(c) for c in e.children()]) if e.children() else e
    tests = []
    for test in conjuncts(e.condition):
        sides = [_simple(c) for c in test.children()]
        simple = rebuild(test, sides) if sides else test
        known = bounds(simple)
        if known == FALSE:
            return const(0, e.dtype)
        if known != TRUE:
            tests.append(simple)
    return _guarded(tests, _tidy(e.then))


def _guarded(tests: Sequence[Expr], value: Expr) -> Expr:
    """select(all tests, value, 0), with tests on one factor alone where only it needs them.

    select(0 <= i, x[i] * w[k], 0)   ->   select(0 <= i, x[i], 0) * w[k]
    """
    match value:
        case Const():
            return value
        case Cast(value=inner):
            return rebuild(value, [_guarded(tests, inner)])
        case Select(condition=condition, then=then) if is_guard(value):
            return _guarded([*conjuncts(condition), *tests], then)
        case Binary(op="mul", left=left, right=right):
            for_left = [t for t in tests if _concerns(t, left)]
            for_right = [t for t in tests if t not in for_left and _concerns(t, right)]
            rest = [t for t in tests if t not in for_left and t not in for_right]
            if _is_safe(left, for_left) and _is_safe(right, for_right):
                factors = _guarded(for_left, left) * _guarded(for_right, right)
                return select(all_of(rest), factors, const(0, value.dtype))
    return select(all_of(tests), value, const(0, value.dtype))


def _concerns(test: Expr, value: Expr) -> bool:
    return any(is_bounds_check(test, r) for r in subexpressions(value) if isinstance(r, Read))


def _is_safe(value: Expr, tests: Sequence[Expr]) -> bool:
    """True when the tests alone keep all reads inside their tensors."""
    held = set(tests)
    for e in subexpressions(value):
        if isinstance(e, Select) and is_guard(e):
            held |= set(conjuncts(e.condition))
    for e in subexpressions(value):
        if not isinstance(e, Read):
            continue
        for index, extent in zip(e.indices, e.tensor.shape):
            reach = bounds(index)
            if reach.low < 0 and (as_expr(0) <= index) not in held:
                return False
            if reach.high >= extent and (index < extent) not in held:
                return False
    return True
