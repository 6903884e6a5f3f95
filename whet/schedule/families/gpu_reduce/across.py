"""Numbers of several threads combined into one.

Threads that follow each other exchange them within their warp, where every lane then has the same
total, and the warps leave theirs in shared memory:

    exchange other <- total of lane ^ 16
    total = total + other                                     and so on with 8, 4, 2, 1
    if lane == 0: cells[warp] = total
    barrier
    (cells[0] + cells[1]) + (cells[2] + cells[3])             every thread may read it

Threads that lie apart go by way of shared memory alone:

    cells[0 ... 255] = a number of each thread
    barrier
    if part < 32: cells[part] = cells[part] + cells[part + 32] + ... + cells[part + 224]
    barrier
    if part < 4: cells[part] = cells[part] + cells[part + 4] + ... + cells[part + 28]
    barrier
    cells[0] + cells[1] + cells[2] + cells[3]                 every thread may read it

The order is always the same, and the loads of a step do not wait for each other.  (What lanes
exchange, each adds to its own: a + b here is b + a there, which is the same number.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from whet.ir.expr import Expr, Read, equal
from whet.ir.program import Buffer, If, Stmt, Store
from whet.ir.threads import WARP, Barrier, Exchange
from whet.schedule.program.accumulate import combine

TOGETHER = 8
"""Numbers that one thread combines in a step."""


def steps_of(parts: int) -> Iterator[int]:
    """How many numbers are left after every step but the last: 256 -> 32, 4."""
    while parts > TOGETHER:
        parts //= TOGETHER
        yield parts


def exchanges_of(threads: int) -> Iterator[int]:
    """How far apart the lanes are that exchange their numbers: 32 -> 16, 8, 4, 2, 1."""
    apart = min(threads, WARP) // 2
    while apart:
        yield apart
        apart //= 2


def combined(kind: str, cell: Callable[[Expr | int], Expr], first: Expr | int, step: int,
             count: int) -> Expr:  # fmt: skip
    """cell[first] + cell[first + step] + ..., so many of them."""
    total = cell(first)
    for n in range(1, count):
        total = combine(kind, total, cell(first + n * step))
    return total


def in_pairs(kind: str, cell: Callable[[Expr | int], Expr], count: int) -> Expr:
    """(cell[0] + cell[1]) + (cell[2] + cell[3]) + ..., so many of them: few wait for each other."""
    terms = [cell(n) for n in range(count)]
    while len(terms) > 1:
        pairs = [combine(kind, a, b) for a, b in zip(terms[::2], terms[1::2])]
        terms = pairs + terms[len(pairs) * 2 :]
    return terms[0]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Threads that follow each other and combine a number each: a power of two of the lanes of a
    warp, or the lanes of so many whole warps."""

    threads: int
    total: Buffer
    """The register of a thread's number."""
    other: Buffer
    """A register beside it."""

    @property
    def warps(self) -> int:
        return max(self.threads // WARP, 1)

    def in_warp(self, kind: str) -> list[Stmt]:
        """Combines the numbers of all lanes in each of them."""
        assert self.threads % WARP == 0 or WARP % self.threads == 0, self.threads
        found: list[Stmt] = []
        for mask in exchanges_of(self.threads):
            new = combine(kind, self.total[()], self.other[()])
            found += [Exchange(self.other, (), self.total, (), mask), Store(self.total, (), new)]
        return found

    def in_block(
        self, kind: str, thread: Expr, cell: Callable[[Expr | int], Read]
    ) -> tuple[list[Stmt], Expr]:
        """Combines the numbers of all threads, given the number of this one and the cells in
        shared memory that warps leave theirs in; and what the total is then, in every thread."""
        found = self.in_warp(kind)
        if self.warps == 1:
            return found, self.total[()]
        own = cell(thread // WARP)
        assert isinstance(own.tensor, Buffer)
        leave = Store(own.tensor, own.indices, self.total[()])
        found += [If(equal(thread % WARP, 0), (leave,)), Barrier("block")]
        return found, in_pairs(kind, cell, self.warps)


def across_threads(
    kind: str,
    part: Expr,
    parts: int,
    cell: Callable[[Expr | int], Expr],
    store: Callable[[Expr], Stmt],
) -> tuple[list[Stmt], Expr]:
    """The steps behind the store of every thread's number, and what the total is then.

    `cell` is the number of a part in shared memory, and `store` writes a thread's own; parts are a
    power of two.
    """
    statements: list[Stmt] = [Barrier("block")]
    left = parts
    for after in steps_of(parts):
        total = combined(kind, cell, part, after, left // after)
        statements += [If(part < after, (store(total),)), Barrier("block")]
        left = after
    return statements, combined(kind, cell, 0, 1, left)
