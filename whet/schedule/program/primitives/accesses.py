"""Reads and writes of statements: listed, mapped, moved to other buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.core.types import Shape
from whet.ir.expr import Expr, Read
from whet.ir.program import Allocate, Block, Buffer, Stmt, Store, walk
from whet.ir.tensor import subexpressions
from whet.schedule.program.access import map_expr


def map_block(
    block: Sequence[Stmt],
    value: Callable[[Expr], Expr],
    place: Callable[[Buffer, tuple[Expr, ...]], tuple[Buffer, tuple[Expr, ...]]] | None = None,
) -> Block:
    """The statements with every expression mapped, and the places of stores if wanted."""

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and place is not None:
            stmt = Store(*place(stmt.buffer, stmt.indices), stmt.value, stmt.stream)
        return stmt.rebuild(
            [value(e) for e in stmt.expressions], [tuple(map(visit, b)) for b in stmt.blocks]
        )

    return tuple(map(visit, block))


def reads_in(block: Sequence[Stmt]) -> list[Read]:
    """All reads of the statements."""
    return [
        x
        for stmt in walk(block)
        for e in stmt.expressions
        for x in subexpressions(e)
        if isinstance(x, Read)
    ]


def stores_in(block: Sequence[Stmt]) -> list[Store]:
    return [s for s in walk(block) if isinstance(s, Store)]


def allocated_in(block: Sequence[Stmt]) -> set[Buffer]:
    return {s.buffer for s in walk(block) if isinstance(s, Allocate)}


def move_accesses(
    block: Sequence[Stmt],
    old: Buffer,
    new: Buffer,
    at: Callable[[tuple[Expr, ...]], tuple[Expr, ...]],
) -> Block:
    """The statements with reads and stores of one buffer going to another at moved indices."""

    def value(e: Expr) -> Expr:
        def change(x: Expr) -> Expr | None:
            if isinstance(x, Read) and x.tensor is old:
                return Read(new, at(tuple(value(i) for i in x.indices)))
            return None

        return map_expr(e, change)

    def place(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return (new, at(indices)) if buffer is old else (buffer, indices)

    return map_block(block, value, place)


def strides_like(buffer: Buffer, shape: Shape) -> Shape | None:
    """Strides of a contiguous buffer of that shape whose axes lie in memory as another's do."""
    old = buffer.element_strides
    order = sorted(range(len(shape)), key=lambda n: -old[n])
    if order == list(range(len(shape))):
        return None
    step, strides = 1, [0] * len(shape)
    for n in reversed(order):
        strides[n], step = step, step * shape[n]
    return tuple(strides)
