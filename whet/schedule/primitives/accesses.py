"""What statements read and write: listed, mapped, moved to other buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as with_fields

from whet.core.types import Shape
from whet.ir.expr import Expr, Read
from whet.ir.program import Allocate, Buffer, If, Let, Loop, Prefetch, Stmt, Store, While
from whet.ir.tensor import subexpressions
from whet.schedule.access import map_expr
from whet.schedule.primitives.tree import Block, blocks_of, walk, with_blocks


def map_block(
    block: Sequence[Stmt],
    value: Callable[[Expr], Expr],
    place: Callable[[Buffer, tuple[Expr, ...]], tuple[Buffer, tuple[Expr, ...]]] | None = None,
) -> Block:
    """The statements with every expression mapped, and the places of stores if wanted."""

    def visit(stmt: Stmt) -> Stmt:
        match stmt:
            case Store(buffer=buffer, indices=indices, value=stored, stream=stream):
                if place is not None:
                    buffer, indices = place(buffer, indices)
                return Store(buffer, tuple(map(value, indices)), value(stored), stream)
            case Prefetch(buffer=buffer, indices=indices):
                return Prefetch(buffer, tuple(map(value, indices)))
            case Loop(extent=extent):
                stmt = with_fields(stmt, extent=value(extent))
            case While(condition=condition) | If(condition=condition):
                stmt = with_fields(stmt, condition=value(condition))
            case Let(value=bound):
                stmt = with_fields(stmt, value=value(bound))
        return with_blocks(stmt, [tuple(map(visit, b)) for b in blocks_of(stmt)])

    return tuple(map(visit, block))


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement itself, not of those inside it."""
    match stmt:
        case Store(indices=indices, value=value):
            return (*indices, value)
        case Prefetch(indices=indices):
            return indices
        case Loop(extent=extent):
            return (extent,)
        case While(condition=condition) | If(condition=condition):
            return (condition,)
        case Let(value=value):
            return (value,)
    return ()


def reads_in(block: Sequence[Stmt]) -> list[Read]:
    """All reads of the statements."""
    return [
        x
        for stmt in walk(block)
        for e in expressions(stmt)
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
