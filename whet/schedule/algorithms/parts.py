"""Reductions in parts: few results of many terms (Ansor's reduction factorization, rule 6).

    y[i] = epilogue(sum(a[k, i] * x[k] for k in 4096))

    parts[p, i] = sum(a[64 * p + k, i] * x[64 * p + k] for k in 64)      (any other sketch)
    y[i] = epilogue(sum(parts[p, i] for p in 64))                        (the spatial sketch)

Results alone may be too few for all threads, or for all lanes and registers of one, and a part may
be short enough to be read where it lies while it is in the caches: it makes work, and order, where
results do not.  Parts are cut along what lies furthest apart in memory, so that each is a piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whet.core.types import Shape
from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, elements
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Placeholder, Tensor, subexpressions
from whet.schedule.program.access import address_form, map_expr
from whet.tasks.task import Task

FEWEST_TERMS = 256
"""A reduction of fewer terms stays whole."""
FEWEST_BYTES = 64 << 10
"""Where less than this is read, threads are not worth waking."""
SHORTEST_PART = 16
"""Terms of a part, at least: each of them writes its results, which are read once more."""
MOST_PARTS = 1024
MOST_RESULTS = 1 << 14


@dataclass(frozen=True, eq=False)
class Halves:
    """The two tasks that a reduction in some number of parts consists of."""

    parts: Task
    whole: Task
    buffer: Buffer
    """The memory between them."""


def reduced_order(task: Task) -> tuple[Axis, ...] | None:
    """Reduced axes, furthest apart in memory first; None where parts are of no use."""
    reduce = _only_reduce(task)
    if reduce is None or elements(reduce.axes) < FEWEST_TERMS:
        return None
    reads = [e for e in subexpressions(reduce.value) if isinstance(e, Read)]
    nbytes = sum(t.type.nbytes for t in {e.tensor for e in reads})
    # Constants are stored in the order of the loops anyway.
    if nbytes < FEWEST_BYTES or 2 * task.constant_bytes > nbytes:
        return None
    if task.outputs[0].type.size > MOST_RESULTS or any(e.tensor not in task.buffers for e in reads):
        return None
    forms = [address_form(task.buffers[e.tensor], e.indices) for e in reads]
    apart = {k: max((abs(f.coefficient(k)) for f in forms), default=0) for k in reduce.axes}
    order = tuple(sorted((k for k in reduce.axes if k.extent > 1), key=lambda k: -apart[k]))
    return order if numbers_of_parts(task, order) else None


def _only_reduce(task: Task) -> Reduce | None:
    """The reduction of a task of one stage that has no other."""
    if len(task.outputs) != 1:
        return None
    terms = list(subexpressions(task.outputs[0].body))
    reduces = [e for e in terms if isinstance(e, Reduce)]
    if len(reduces) != 1 or reduces[0].kind.startswith("arg"):
        return None
    if any(isinstance(e, Read) and isinstance(e.tensor, Compute) for e in terms):
        return None
    return reduces[0]


def numbers_of_parts(task: Task, order: tuple[Axis, ...]) -> tuple[int, ...]:
    """Possible numbers of parts, about one for every power of two.

    All of the outer axes and a divisor of the next one: pieces are of the same length.
    """
    terms = elements(order)
    most = min(MOST_PARTS, terms // SHORTEST_PART)
    found: dict[int, int] = {}
    whole = 1
    for axis in order:
        for n in range(1, axis.extent + 1):
            if axis.extent % n == 0 and 1 < whole * n <= most:
                found[(whole * n).bit_length()] = whole * n
        whole *= axis.extent
    return tuple(found.values())


def halves_of(task: Task, order: tuple[Axis, ...], parts: int) -> Halves:
    """The tasks of the parts and of what they make.

    y[i] = f(sum(x[k, l, i] for k in 6, l in 4)) in 12 parts  ->
        parts[p, q, i] = sum(x[p, 2 * q + l, i] for l in 2),  y[i] = f(sum(parts[p, q, i] ...))
    """
    (output,) = task.outputs
    reduce = _only_reduce(task)
    assert reduce is not None
    counted: list[Axis] = []
    inside: dict[Expr, Expr] = {}
    rest: list[Axis] = [k for k in reduce.axes if k.extent == 1]
    left = parts
    for axis in order:
        pieces = math.gcd(left, axis.extent) if left < axis.extent else axis.extent
        left //= pieces
        position: Expr | None = None
        if pieces > 1:
            part = Axis(f"part{len(counted)}", pieces)
            counted.append(part)
            position = part
        if pieces < axis.extent:
            length = axis.extent // pieces
            within = Axis(axis.name, length, "R") if pieces > 1 else axis
            rest.append(within)
            position = within if position is None else position * length + within
        assert position is not None
        inside[axis] = position
    axes = (*counted, *output.axes)
    body = Reduce(reduce.kind, tuple(rest), substitute(reduce.value, inside))
    made = Compute(f"{output.name}_parts", axes, body)
    shape = tuple(a.extent for a in axes)
    buffer = Buffer(made.name, shape, reduce.dtype, _strides(task, len(counted), shape))
    given = Placeholder(made.name, shape, reduce.dtype)
    summed = tuple(Axis(a.name, a.extent, "R") for a in counted)
    total = Reduce(reduce.kind, summed, given[(*summed, *output.axes)])
    body_of_all = map_expr(output.body, lambda e: total if e is reduce else None)
    whole = Compute(output.name, output.axes, body_of_all)
    between: dict[Tensor, Buffer] = {made: buffer, given: buffer, whole: task.buffers[output]}
    buffers = {**task.buffers, **between}
    first = Task((made,), buffers, _read(task.constants, made), task.borders, task.given)
    second = Task((whole,), buffers, frozenset(), task.borders, task.given)
    return Halves(first, second, buffer)


def _read(constants: frozenset[Tensor], stage: Compute) -> frozenset[Tensor]:
    """The constants that a stage reads."""
    read = {e.tensor for e in subexpressions(stage.body) if isinstance(e, Read)}
    return frozenset(t for t in constants if t in read)


def _strides(task: Task, counted: int, shape: Shape) -> Shape:
    """Results of a part in the order that the output has them, without gaps; parts outermost.

    Where one thread's last part and another's first one share a cache line, that costs next to
    nothing, since a result is written once; gaps would give the second loop more lines to read.
    """
    (output,) = task.outputs
    steps = task.buffers[output].element_strides
    inner = sorted(range(output.rank), key=lambda n: -steps[n])
    order = [*range(counted), *(n + counted for n in inner)]
    strides = [0] * len(shape)
    step = 1
    for n in reversed(order):
        strides[n] = step
        step *= shape[n]
    return tuple(strides)
