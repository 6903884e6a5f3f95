"""Launches: how the kernels of a program are started.

    zero = 0                              k_0: one thread
    parallel i in 1000: y[i] = 0    ->    k_1: 4 blocks of 256 threads
    for i in 1000: y[i] = 0               the same: rounds are independent (`spread`)
    grid b in 8: ... lane l in 32: ..     k_2: 8 clusters of blocks

Every statement of a program's body is a kernel of its own, because the end of a kernel is the only
point that all threads of a GPU wait for.  All of them take the addresses of inputs, outputs and
workspace, in this order, and that of the status behind them, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from whet.codegen.cuda.spread import spread
from whet.ir.expr import Const
from whet.ir.program import Loop, Program, Stmt, walk
from whet.ir.threads import WARP, AwaitInputs, LaunchNext, extent_of, thread_nest

PLAIN_THREADS = 256
"""Threads of a block where a parallel loop is all that is said."""
ROOM_BYTES = 8 << 10
"""Shared memory of a block that is missed by the kernel in front of it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and the threads that run it."""

    symbol: str
    clusters: int
    """Clusters of the grid; its first extent is `clusters * cluster`."""
    cluster: int
    """Blocks of a cluster."""
    threads: int
    """Threads of a block."""
    shared_bytes: int
    awaits: bool
    """Whether it says itself when it needs what earlier kernels wrote, so that it may be launched
    before they end."""


def launches_of(program: Program) -> tuple[Launch, ...]:
    """The kernels of a program, in order."""
    return tuple(
        _launch(f"{program.name}_{number}", stmt) for number, stmt in enumerate(program.body)
    )


def lets_next_in(program: Program) -> bool:
    """Whether the last kernel of a program allows the next one to be launched before it ends."""
    return any(isinstance(s, LaunchNext) for s in walk(program.body[-1:]))


def in_turn(kernels: Iterable[tuple[tuple[Launch, ...], bool]]) -> Iterator[tuple[Launch, ...]]:
    """The launches of kernels that follow each other, each with whether it lets the next one in.

    A kernel that lets nobody in has many blocks, which wait in the room that the kernel in front of
    it still needs, if they have tiles in shared memory.  It is launched when that one has ended
    (ResNet-50 in fp32x3, where products on threads follow some on tensor cores: 509 -> 452 us on an
    H200; where nobody lets others in, the early launch saves 0.35 us for each kernel).
    """
    before = False
    for launches, lets_in in kernels:
        if before and not lets_in and launches and launches[0].shared_bytes > ROOM_BYTES:
            launches = (replace(launches[0], awaits=False), *launches[1:])
        yield launches
        before = lets_in


def _launch(symbol: str, stmt: Stmt) -> Launch:
    nest = thread_nest(stmt)
    if nest is None:
        extent = plain_extent(spread(stmt))
        threads = min(PLAIN_THREADS, -(-extent // WARP) * WARP) if extent > 1 else 1
        return Launch(symbol, max(-(-extent // threads), 1), 1, threads, 0, awaits=False)
    from whet.codegen.cuda.shared import shared_layout

    awaits = any(isinstance(s, AwaitInputs) for s in walk(nest.body))
    threads = nest.warps * WARP
    shared = shared_layout(nest).nbytes
    return Launch(symbol, extent_of(nest.grid), nest.blocks, threads, shared, awaits)


def plain_extent(stmt: Stmt) -> int:
    """The number of threads of a statement that is no code of threads: the rounds of its outer
    parallel loops, else one."""
    total = 1
    for loop in parallel_loops(stmt):
        assert isinstance(loop.extent, Const)
        total *= int(loop.extent.value)
    return total


def parallel_loops(stmt: Stmt) -> Iterator[Loop]:
    """The parallel loops around all else."""
    while isinstance(stmt, Loop) and stmt.kind == "parallel" and isinstance(stmt.extent, Const):
        yield stmt
        if len(stmt.body) != 1:
            return
        (stmt,) = stmt.body
