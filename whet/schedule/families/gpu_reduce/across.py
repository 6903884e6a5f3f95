"""Numbers of several threads combined into one, through shared memory.

    cells[0 ... 255] = a number of each thread
    barrier
    if part < 32: cells[part] = cells[part] + cells[part + 32] + ... + cells[part + 224]
    barrier
    if part < 4: cells[part] = cells[part] + cells[part + 4] + ... + cells[part + 28]
    barrier
    cells[0] + cells[1] + cells[2] + cells[3]                 every thread may read it

The order is always the same, and the loads of a step do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from whet.ir.expr import Expr
from whet.ir.program import If, Stmt
from whet.ir.threads import WARP, Barrier
from whet.schedule.program.accumulate import combine

TOGETHER = 8
"""Numbers that one thread combines in a step."""


def steps_of(parts: int) -> Iterator[int]:
    """How many numbers are left after every step but the last: 256 -> 32, 4."""
    while parts > TOGETHER:
        parts //= TOGETHER
        yield parts


def barrier_within(threads: int) -> Barrier:
    """The barrier of threads that follow each other, from a multiple of their number on."""
    return Barrier("warp" if threads <= WARP else "block")


def combined(kind: str, cell: Callable[[Expr | int], Expr], first: Expr | int, step: int,
             count: int) -> Expr:  # fmt: skip
    """cell[first] + cell[first + step] + ..., so many of them."""
    total = cell(first)
    for n in range(1, count):
        total = combine(kind, total, cell(first + n * step))
    return total


def across_threads(
    kind: str,
    part: Expr,
    parts: int,
    barrier: Barrier,
    cell: Callable[[Expr | int], Expr],
    store: Callable[[Expr], Stmt],
) -> tuple[list[Stmt], Expr]:
    """The steps behind the store of every thread's number, and what the total is then.

    `cell` is the number of a part in shared memory, and `store` writes a thread's own; parts are a
    power of two.
    """
    statements: list[Stmt] = [barrier]
    left = parts
    for after in steps_of(parts):
        total = combined(kind, cell, part, after, left // after)
        statements += [If(part < after, (store(total),)), barrier]
        left = after
    return statements, combined(kind, cell, 0, 1, left)
