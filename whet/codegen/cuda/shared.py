"""Places in shared memory: buffers that are not in use together share theirs.

    ring is used | wait 0 | barrier | part is used      ->      ring and part begin at 0

Two buffers may lie in the same place if a barrier stands between the last use of the one and the
first use of the other: one of the cluster where other blocks read the first, and behind a wait
for all copies where these filled it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from whet.core.gpu import SHARED_ALIGNMENT
from whet.ir.expr import Read
from whet.ir.program import Align, Allocate, Buffer, Let, Stmt, Store, walk
from whet.ir.tensor import subexpressions
from whet.ir.threads import Barrier, Copy, MatrixLoad, ThreadNest, Wait


@dataclass(frozen=True, eq=False)
class SharedLayout:
    """Offsets in bytes within a block's shared memory, and its size."""

    offsets: Mapping[Buffer, int]
    nbytes: int


@dataclass(frozen=True, eq=False)
class _Life:
    """The first and last statement that uses a buffer."""

    buffer: Buffer
    first: int
    last: int
    nbytes: int
    is_read_by_others: bool
    is_copied_to: bool


def shared_layout(nest: ThreadNest) -> SharedLayout:
    """A place for every shared buffer, lowest first, in the order of their first use."""
    order = list(sequence(nest.body))
    lives = sorted(_lives(nest, order), key=lambda life: life.first)
    placed: list[tuple[int, _Life]] = []
    for life in lives:
        at = 0
        for start, other in sorted(placed, key=lambda p: p[0]):
            end = start + other.nbytes
            if at < end and start < at + life.nbytes and not _apart(other, life, order):
                at = -(-end // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
        placed.append((at, life))
    offsets = {life.buffer: at for at, life in placed}
    return SharedLayout(offsets, max((at + life.nbytes for at, life in placed), default=0))


def sequence(block: Sequence[Stmt]) -> Iterator[Stmt]:
    """Statements in the order in which they run, those inside allocations and names instead of
    these."""
    for stmt in block:
        if isinstance(stmt, Allocate | Let | Align):
            yield from sequence(stmt.body)
        else:
            yield stmt


def buffer_bytes(buffer: Buffer, *, distributed: bool) -> int:
    """The bytes of a block's part of a buffer, gaps between its rows included."""
    steps = list(zip(buffer.shape, buffer.element_strides))[1 if distributed else 0 :]
    last = buffer.offset + sum((extent - 1) * step for extent, step in steps)
    return (last + 1) * buffer.dtype.itemsize


def _lives(nest: ThreadNest, order: Sequence[Stmt]) -> Iterator[_Life]:
    used = [set(_used(stmt)) for stmt in order]
    inside = [s.buffer for s in walk(nest.body) if isinstance(s, Allocate)]
    local = [b for b in inside if b.scope == "shared"]
    copied = {s.target for s in walk(nest.body) if isinstance(s, Copy)}
    for buffer in (*nest.distributed, *nest.shared, *local):
        at = [n for n, found in enumerate(used) if buffer in found]
        others = buffer in nest.distributed
        nbytes = buffer_bytes(buffer, distributed=others)
        yield _Life(buffer, at[0] if at else 0, at[-1] if at else 0, nbytes, others,
                    buffer in copied)  # fmt: skip


def _used(stmt: Stmt) -> Iterator[Buffer]:
    for inner in walk([stmt]):
        match inner:
            case Store(buffer=buffer):
                yield buffer
            case Copy(target=buffer):
                yield buffer
            case MatrixLoad(source=buffer):
                yield buffer
        for e in subexpressions(*inner.expressions):
            if isinstance(e, Read) and isinstance(e.tensor, Buffer):
                yield e.tensor


def _apart(a: _Life, b: _Life, order: Sequence[Stmt]) -> bool:
    before, after = (a, b) if a.last < b.first else (b, a)
    between = order[before.last + 1 : after.first]
    scopes = ("cluster",) if before.is_read_by_others else ("block", "cluster")
    barriers = [n for n, s in enumerate(between) if isinstance(s, Barrier) and s.scope in scopes]
    if not barriers or before.last >= after.first:
        return False
    waits = [n for n, s in enumerate(between) if isinstance(s, Wait) and s.pending == 0]
    return not before.is_copied_to or any(w < b for w in waits for b in barriers)
