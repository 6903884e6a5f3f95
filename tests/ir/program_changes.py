"""Changes of programs, one statement at a time: what makes right ones wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from whet.ir.expr import Expr
from whet.ir.program import Block, If, Program, Stmt, walk

Change = Callable[[Stmt], Sequence[Stmt]]


def changed(program: Program, kind: type[Stmt], which: int, change: Change) -> Program:
    """The program with one of its statements of a kind changed into others."""
    found = [s for s in walk(program.body) if isinstance(s, kind)]
    count = iter(range(len(found)))

    def inside(block: Block) -> Iterator[Stmt]:
        for stmt in block:
            chosen = isinstance(stmt, kind) and next(count) == which % len(found)
            new = stmt.rebuild(stmt.expressions, [tuple(inside(b)) for b in stmt.blocks])
            yield from change(new) if chosen else (new,)

    body = tuple(inside(program.body))
    return Program(program.name, program.inputs, program.outputs, body, program.workspace)


def without(program: Program, kind: type[Stmt], which: int = 0) -> Program:
    return changed(program, kind, which, lambda _: ())


def replaced(program: Program, kind: type[Stmt], which: int, *new: Stmt) -> Program:
    return changed(program, kind, which, lambda _: new)


def only_if(program: Program, kind: type[Stmt], which: int, condition: Expr) -> Program:
    return changed(program, kind, which, lambda s: (If(condition, (s,)),))


def with_expressions(
    program: Program, kind: type[Stmt], which: int, change: Callable[[list[Expr]], None]
) -> Program:
    """The program with the expressions of one statement changed in their list."""

    def rebuilt(stmt: Stmt) -> Sequence[Stmt]:
        expressions = list(stmt.expressions)
        change(expressions)
        return (stmt.rebuild(expressions, stmt.blocks),)

    return changed(program, kind, which, rebuilt)
