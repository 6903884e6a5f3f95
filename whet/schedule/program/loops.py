"""Pieces of loop nests that the sketches share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from whet.core.dtypes import DType, i64, integer_range
from whet.ir.expr import Axis, Const, Expr, Read, Var, call, const
from whet.ir.program import (
    Buffer,
    Loop,
    LoopKind,
    Stmt,
    walk,
)
from whet.ir.tensor import Tensor, subexpressions
from whet.ir.threads import Copy
from whet.schedule.program.access import memory_of
from whet.tasks.task import Task


def loop(var: Var, extent: int, *body: Stmt, kind: LoopKind = "serial") -> Loop:
    return Loop(var, const(extent, i64), body, kind)


def split_index(index: Expr, axes: Sequence[Axis]) -> dict[Expr, Expr]:
    """The positions on several axes of a position in their product, last axis fastest."""
    found: dict[Expr, Expr] = {}
    below = 1
    for n, axis in enumerate(reversed(axes)):
        part = index // below
        found[axis] = part if n == len(axes) - 1 else part % axis.extent
        below *= axis.extent
    return found


def start_of(number: Expr, size: int, extent: int) -> Expr:
    """The start of block `number` of a row; the last is moved back to end at the edge.

    A block that is longer than the row is its only one.
    """
    moved = extent % size and size < extent
    return call("min", number * size, extent - size) if moved else number * size


def power_of_two_below(n: int) -> int:
    """The largest power of two that is not above n."""
    return 1 << (n.bit_length() - 1)


def within_count(number: Expr, limit: int, *, exact: bool) -> Expr:
    """A block number that may run over its limit, repeating the last block if so."""
    return number if exact else call("min", number, limit - 1)


def identity_element(kind: str, dtype: DType) -> Const:
    """The value that a reduction starts from."""
    match kind:
        case "sum" | "any":
            return const(0, dtype)
        case "prod" | "all":
            return const(1, dtype)
        case "max" | "argmax":
            return const(_lowest(dtype), dtype)
        case "min" | "argmin":
            return const(_highest(dtype), dtype)
    raise AssertionError(kind)


def _lowest(dtype: DType) -> float | int:
    return float("-inf") if dtype.is_float else integer_range(dtype)[0]


def _highest(dtype: DType) -> float | int:
    return float("inf") if dtype.is_float else integer_range(dtype)[1]


def arguments_of(
    task: Task, body: Sequence[Stmt], known: Mapping[Buffer, Tensor]
) -> tuple[tuple[Buffer, ...], tuple[Tensor, ...]]:
    """The buffers that statements read from outside, with the tensors behind them."""
    sources: dict[Buffer, Tensor] = dict(known)
    for tensor in task.inputs:
        sources.setdefault(task.buffers[tensor], tensor)
        sources.setdefault(memory_of(tensor, task), tensor)
    used = [b for b in read_buffers(*body) if b in sources]
    return tuple(used), tuple(sources[b] for b in used)


def read_buffers(*block: Stmt) -> list[Buffer]:
    """All buffers that statements read or copy."""
    copied = [stmt.source for stmt in walk(block) if isinstance(stmt, Copy)]
    values = (e for stmt in walk(block) for e in stmt.expressions)
    reads = (e for e in subexpressions(*values) if isinstance(e, Read))
    read = (r.tensor for r in reads if isinstance(r.tensor, Buffer))
    return list(dict.fromkeys((*copied, *read)))


def vectors_along(extent: int, lanes: int, store: Callable[[Expr], Stmt]) -> list[Stmt]:
    """Vector stores along a run: whole vectors, then one of what is left."""
    n, lane = Var("n"), Var("lane")
    found: list[Stmt] = []
    if extent >= lanes:
        vector = loop(lane, lanes, store(n * lanes + lane), kind="vector")
        found.append(loop(n, extent // lanes, vector))
    if rest := extent % lanes:
        found.append(loop(lane, rest, store(lane + (extent - rest)), kind="vector"))
    return found
