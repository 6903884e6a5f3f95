"""The work of a stage's expressions: what the analytic models count.

    select(0 <= h, x[h, c], 0.0) * w[c] + acc     along c  ->  3 operations, 2 loads per vector

Arithmetic on indices is not counted: it is hoisted out of loops or part of an address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import Affine, affine, free_symbols, substitute
from whet.ir.expr import Axis, Binary, Call, Cast, Expr, Read, Reduce, Select, as_expr
from whet.ir.functions import SLOTS
from whet.ir.program import Buffer
from whet.ir.tensor import Tensor
from whet.schedule.cost.numbers.caches import HELD_UP, STREAMED
from whet.schedule.cost.numbers.threads import LATE, SERIAL_STEP_NS, STEP_NS
from whet.schedule.cost.rates import rates_of
from whet.schedule.program.access import address_form


def terms(e: Expr, *, inside_reductions: bool = False) -> Iterator[Expr]:
    """The distinct parts of a value, without indices and, unless asked for, reduced values."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        yield x
        if isinstance(x, Reduce) and not inside_reductions and x is not e:
            continue
        if not isinstance(x, Read):
            stack.extend(x.children())


@lru_cache(maxsize=1024)
def operations(e: Expr, along: Axis | None = None) -> float:
    """Operations per vector; a product that is added at once costs nothing extra.

    With `along`, only of what changes along this axis: the rest is computed once for all lanes.
    """
    total = 0.0
    for x in terms(e):
        if along is not None and along not in free_symbols(x):
            continue
        match x:
            case Binary(op=op, left=left, right=right):
                fused = op == "add" and x.dtype.is_float
                total -= fused and any(isinstance(y, Binary) and y.op == "mul"
                                       for y in (left, right))  # fmt: skip
                total += SLOTS.get(op, 1)
            case Call(name=name):
                total += SLOTS.get(name, 1)
            case Select() | Cast():
                total += 1
    return total


@lru_cache(maxsize=1024)
def reads(e: Expr) -> tuple[Read, ...]:
    """The reads of a value, outside of its reductions."""
    return tuple(x for x in terms(e) if isinstance(x, Read))


@lru_cache(maxsize=1024)
def form_of(read: Read) -> Affine:
    """The address of a read as a linear form; scratch rows have plain indices."""
    tensor = read.tensor
    if not isinstance(tensor, Buffer):
        tensor = Buffer(tensor.name, tensor.shape, tensor.dtype)
    return address_form(tensor, read.indices)


def lane_step(read: Read, axis: Axis | None) -> int | None:
    """The address's step per lane along the axis; None when it jumps about."""
    if axis is None:
        return 0
    form = form_of(read)
    if any(axis in free_symbols(a) for a, _ in form.terms if a is not axis):
        return None
    return form.coefficient(axis)


@lru_cache(maxsize=1024)
def lane_places(read: Read, axis: Axis | None, lanes: int) -> int:
    """Elements that the lanes of one vector read; fewer than lanes when some share."""
    if axis is None:
        return 1
    address = form_of(read).expr()
    return len({affine(substitute(address, {axis: as_expr(n)})) for n in range(lanes)})


def distinct(form: Affine, extents: dict[Axis, int]) -> int:
    """The number of addresses that a form takes over the given extents of some axes."""
    return len(addresses(form, extents))


def covered(addresses: Array, width: Array | int) -> Array:
    """Elements that vectors of a width from all these addresses on have in common or alone."""
    apart = np.diff(addresses)
    width = np.asarray(width)
    return np.minimum(apart, width[..., None]).sum(axis=-1) + width


def step_along(form: Affine, axis: Axis) -> int:
    """Elements between addresses at neighbouring positions; very many where it depends on data or
    on quotients, so that every position counts."""
    moved = any(axis in free_symbols(a) for a, _ in form.terms if a is not axis)
    return 1 << 40 if moved else abs(form.coefficient(axis))


def addresses(form: Affine, extents: dict[Axis, int]) -> Array:
    """The addresses that a form takes over the given extents of some axes, sorted."""
    positions: Array = np.zeros(1, np.int64)
    for axis, extent in extents.items():
        step = step_along(form, axis)
        if step and extent > 1:
            span = step * np.arange(extent)
            if step > positions[-1]:  # each position starts a piece of its own
                positions = (span[:, None] + positions).reshape(-1)
            else:
                positions = np.unique(positions[:, None] + span)
    return positions


def traffic_cycles(tensors: Sequence[Tensor], target: CpuTarget) -> float:
    """Cycles to bring all elements once from where they can be at best."""
    nbytes = sum(t.type.size * t.dtype.itemsize for t in tensors)
    rates = rates_of(target)
    if nbytes <= target.l1d_bytes // 2:
        return nbytes / rates.l1_bytes
    if nbytes <= target.l2_bytes // 2:
        return nbytes / rates.l2_bytes
    return nbytes / (rates.l3_bytes if nbytes <= target.l3_bytes // 2 else rates.copied_bytes)


def streamed_cycles(tensors: Sequence[Tensor], target: CpuTarget) -> float:
    """The same through memory, when results are written past the caches."""
    nbytes = sum(t.type.size * t.dtype.itemsize for t in tensors)
    return nbytes / (STREAMED * rates_of(target).copied_bytes)


def overlapped(a: Array, b: Array | float, felt: Array | float = HELD_UP) -> Array:
    """The time of two things that go on at once, of which the shorter is felt in part."""
    result: Array = np.maximum(a, b) + felt * np.minimum(a, b)
    return result


def fork_join_ns(steps: Array, threads: int, target: CpuTarget) -> Array:
    """The cost of handing steps to the threads; a single one stays where it is."""
    cost = target.constant("fork_join_ns") if threads > 1 else 0.0
    return np.where(np.asarray(steps) > 1, cost, 0.0)


def shared_out(cycles: Array, steps: Array, threads: int, target: CpuTarget) -> Array:
    """Nanoseconds when that many equal steps are dealt out to the threads, with their hand-over."""
    ns = cycles / rates_of(target).clock
    if threads == 1:
        return ns + steps * SERIAL_STEP_NS
    handed = steps * STEP_NS / threads + fork_join_ns(steps, threads, target)
    return ns * rounds(steps, threads) / steps + handed


def rounds(steps: Array, threads: int) -> Array:
    """Steps that pass until the last thread is done with its share."""
    alone = (steps <= 1) | (threads == 1)
    result: Array = np.ceil(steps / threads) + np.where(alone, 0.0, LATE)
    return np.minimum(steps, result)


@lru_cache(maxsize=1024)
def halvings(count: int) -> tuple[int, ...]:
    """count, and what a half, a quarter, ... of it is, rounded up, down to 1."""
    found = {-(-count // (1 << n)) for n in range(count.bit_length() + 1)}
    return tuple(sorted(found, reverse=True))
