"""Writing loop nests of whole populations: what the closed forms of the families share.

    rows = digits(size, axes)                          positions that one step of a loop reaches
    level = Level("io", tiles, "serial", rows)
    describe(store, [level, ...])       ->  Statement with one row per candidate

A level says where its first step leads: the positions on the stage's axes when its variable is 1
and all others are 0.  Addresses are expressions over those axes and are evaluated for all
candidates at once, so quotients, clipped edges and guards need no rules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whet.core.types import Array
from whet.ir.affine import free_symbols
from whet.ir.expr import Axis, Binary, Call, Cast, Const, Expr, Read, Select
from whet.ir.functions import FUNCTIONS, INFIX
from whet.ir.program import Buffer, LoopKind, Store
from whet.ir.tensor import Tensor
from whet.schedule.space.statements import MARKS, Access, Statement, operations_of, reads_of

Moves = Mapping[Expr, Any]
"""Positions on axes, an integer or a column of them each; those that are not named are 0."""


@dataclass(frozen=True, eq=False)
class Level:
    """One loop of all candidates."""

    name: str
    extent: Array | int
    kind: LoopKind
    moves: Moves = field(default_factory=dict)
    reduces: bool = False
    marks: Array | None = None
    """Where the kind differs from candidate to candidate."""


@dataclass(frozen=True, eq=False)
class LocalBuffer:
    """A buffer whose layout depends on the candidate: strides by the names of levels."""

    strides: Mapping[str, Array | int]
    nbytes: Array | int


def describe(
    name: str,
    store: Store,
    levels: Sequence[Level],
    rows: Array,
    local: Mapping[Tensor, LocalBuffer] | None = None,
    *,
    guarded: bool = False,
) -> Statement:
    """The statement `store`, written over the stage's axes, inside the levels."""
    local = local or {}
    count = len(rows)
    places: list[tuple[Tensor, tuple[Expr, ...], bool]] = [
        (r.tensor, r.indices, False) for r in reads_of(store)
    ]
    places.append((store.buffer, store.indices, True))
    loops = np.stack([_column(x.extent, count) for x in levels], axis=1)
    marks = np.stack(
        [_column(MARKS[x.kind] if x.marks is None else x.marks, count) for x in levels], axis=1
    )
    accesses = tuple(
        _local_access(t, local[t], write, levels, count)
        if t in local
        else _access(t, at, write, levels, count)
        for t, at, write in places
    )
    return Statement(
        name, rows, loops, marks.astype(np.int8), tuple(x.reduces for x in levels), accesses,
        operations_of(store), guarded,
    )  # fmt: skip


def cut_sums(
    reduced: Sequence[Level], local: Mapping[Tensor, LocalBuffer], cut: tuple[int, int] | None
) -> tuple[list[Level], dict[Tensor, LocalBuffer]]:
    """The reduced levels and buffers when one level is cut into blocks (`register_tile.cut_of`)."""
    if cut is None:
        return list(reduced), dict(local)
    at, within = cut
    level = reduced[at]
    blocks = ceil_div(level.extent, within)
    outer = {axis: step * within for axis, step in level.moves.items()}
    parts = [
        Level(f"{level.name}b", blocks, "serial", outer, reduces=True),
        Level(f"{level.name}r", within, "serial", level.moves, reduces=True),
    ]
    moved = {
        tensor: LocalBuffer(
            {**x.strides, f"{level.name}b": x.strides.get(level.name, 0) * within,
             f"{level.name}r": x.strides.get(level.name, 0)},
            x.nbytes,
        )
        for tensor, x in local.items()
    }  # fmt: skip
    return [*reduced[:at], *parts, *reduced[at + 1 :]], moved


def _column(value: Array | int, count: int) -> Array:
    return np.broadcast_to(np.asarray(value, np.int64), (count,))


def _local_access(
    tensor: Tensor, place: LocalBuffer, is_write: bool, levels: Sequence[Level], count: int
) -> Access:
    strides = [_column(place.strides.get(x.name, 0), count) for x in levels]
    return Access(
        tensor.name, tensor.dtype.itemsize, is_write, np.stack(strides, axis=1)[:, :, None],
        np.ones((count, 1), np.int64), _column(place.nbytes, count), _in_registers(tensor),
    )  # fmt: skip


def _access(
    tensor: Tensor, indices: Sequence[Expr], is_write: bool, levels: Sequence[Level], count: int
) -> Access:
    buffer = tensor
    if not isinstance(buffer, Buffer):
        buffer = Buffer(tensor.name, tensor.shape, tensor.dtype)
    moved = np.zeros((count, len(levels), len(indices)), np.int64)
    for d, index in enumerate(indices):
        symbols = free_symbols(index)
        base = position(index, {})
        for n, level in enumerate(levels):
            if any(symbol in symbols for symbol in level.moves):
                moved[:, n, d] = position(index, level.moves) - base
    steps = np.broadcast_to(np.array(buffer.element_strides, np.int64), (count, len(indices)))
    size = np.full(count, buffer.type.nbytes)
    where = _in_registers(buffer)
    return Access(buffer.name, buffer.dtype.itemsize, is_write, moved, steps, size, where)


def _in_registers(tensor: Tensor) -> bool:
    return isinstance(tensor, Buffer) and tensor.scope == "register"


def position(e: Expr, at: Moves) -> Any:
    """The value of an index for positions on its axes, integers or columns."""
    match e:
        case Const(value=value):
            return value
        case Binary(op=op, left=left, right=right):
            return INFIX[op].numpy(position(left, at), position(right, at))
        case Call(name=name, args=args):
            return FUNCTIONS[name](*(position(a, at) for a in args))
        case Select(condition=condition, then=then, other=other):
            return np.where(position(condition, at), position(then, at), position(other, at))
        case Cast(value=value):
            return position(value, at)
        case Read():
            return 0  # a place that depends on data
    return at.get(e, 0)


# ------------------------------------------------------------------------- steps of populations
def digits(index: Array | int, axes: Sequence[Axis]) -> dict[Expr, Any]:
    """`split_index` for columns: positions on several axes of one in their product."""
    found: dict[Expr, Any] = {}
    below = 1
    for n, axis in enumerate(reversed(axes)):
        part = np.asarray(index) // below
        found[axis] = part if n == len(axes) - 1 else part % axis.extent
        below *= axis.extent
    return found


def start_at(number: Array | int, size: Array | int, extent: Array | int) -> Array:
    """`start_of` for columns: the last block ends at the edge."""
    exact = np.asarray(extent) % size == 0
    first = np.asarray(number) * size
    result: Array = np.where(exact, first, np.minimum(first, np.asarray(extent) - size))
    return result


def clipped(number: Array | int, limit: Array | int, per_step: Array | int) -> Array:
    """`within_count` for columns: a block number that repeats the last one."""
    exact = np.asarray(limit) % per_step == 0
    result: Array = np.where(exact, number, np.minimum(number, np.asarray(limit) - 1))
    return result


def ceil_div(a: Array | int, b: Array | int) -> Array:
    result: Array = -(-np.asarray(a) // b)
    return result
