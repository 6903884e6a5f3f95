"""Names that a program does not use yet, and copies of statements under such names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_fields

from whet.ir.affine import substitute
from whet.ir.expr import Expr, Var
from whet.ir.program import Allocate, Block, Buffer, Let, Loop, Program, Stmt, walk
from whet.schedule.program.primitives.accesses import allocated_in, map_block, move_accesses
from whet.schedule.program.primitives.tree import with_blocks


class Names:
    """Names that a program does not use yet."""

    def __init__(self, program: Program) -> None:
        buffers = [*program.inputs, *program.outputs, *program.workspace]
        self.taken = {b.name for b in buffers} | {b.name for b in allocated_in(program.body)}
        for stmt in walk(program.body):
            if isinstance(stmt, (Loop, Let)):
                self.taken.add(stmt.var.name)

    def new(self, hint: str) -> str:
        """The hint itself or, if it is taken, with the first free number behind it."""
        name, count = hint, 0
        while name in self.taken:
            count += 1
            name = f"{hint}_{count}"
        self.taken.add(name)
        return name

    def var(self, hint: str) -> Var:
        return Var(self.new(hint))


def renamed_copy(block: Sequence[Stmt], names: Names) -> Block:
    """The statements with new names for everything that they define."""
    variables: dict[Expr, Expr] = {}
    buffers: dict[Buffer, Buffer] = {}
    for stmt in walk(block):
        match stmt:
            case Loop(var=var) | Let(var=var):
                variables[var] = Var(names.new(var.name), var.dtype)
            case Allocate(buffer=buffer):
                buffers[buffer] = with_fields(buffer, name=names.new(buffer.name))
    block = map_block(block, lambda e: substitute(e, variables))
    for old, new in buffers.items():
        block = move_accesses(block, old, new, lambda at: at)
    return rewrite_definitions(block, variables, buffers)


def rewrite_definitions(
    block: Sequence[Stmt], variables: Mapping[Expr, Expr], buffers: Mapping[Buffer, Buffer]
) -> Block:
    """The statements that define variables and buffers, defining others instead."""

    def visit(stmt: Stmt) -> Stmt:
        stmt = with_blocks(stmt, [tuple(map(visit, b)) for b in stmt.blocks])
        if isinstance(stmt, (Loop, Let)):
            var = variables.get(stmt.var, stmt.var)
            assert isinstance(var, Var)
            return with_fields(stmt, var=var)
        if isinstance(stmt, Allocate):
            return with_fields(stmt, buffer=buffers.get(stmt.buffer, stmt.buffer))
        return stmt

    return tuple(map(visit, block))
