"""Loop programs of operators, bound to the memory of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from whet.core.digest import digest_text
from whet.core.types import Shape
from whet.ir.affine import rebuild
from whet.ir.expr import Expr, Read
from whet.ir.program import Align, Allocate, Buffer, Prefetch, Program, Stmt, Store

LARGE_SCRATCH_BYTES = 4096
"""Scratch buffers above this are taken from the arena instead of the stack."""


def bound_program(program: Program, places: Sequence[tuple[Shape, int]]) -> Program:
    """The program over parameters with these strides and offsets, inputs before outputs.

    Large scratch buffers become workspace:   allocate t: f32[9999]   ->   workspace t
    """
    parameters = (*program.inputs, *program.outputs)
    moved = {
        b: replace(b, strides=strides, offset=offset)
        for b, (strides, offset) in zip(parameters, places, strict=True)
    }
    workspace: list[Buffer] = list(program.workspace)
    body = _Rebinder(moved, workspace).block(program.body)
    count = len(program.inputs)
    bound = [moved[b] for b in parameters]
    return Program(program.name, tuple(bound[:count]), tuple(bound[count:]), body,
                   tuple(workspace))  # fmt: skip


def program_key(program: Program) -> str:
    """Equal for programs that do the same on memory of the same layout."""
    parameters = (*program.inputs, *program.outputs, *program.workspace)
    layouts = [f"{b.name} {b.element_strides} {b.offset}" for b in parameters]
    return digest_text(str(replace(program, name="")), *layouts)


class _Rebinder:
    """Rewrites statements for other buffers."""

    def __init__(self, moved: Mapping[Buffer, Buffer], workspace: list[Buffer]) -> None:
        self.moved, self.workspace = moved, workspace
        self.memo: dict[Expr, Expr] = {}

    def block(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return tuple(s for stmt in body for s in self.stmt(stmt))

    def stmt(self, stmt: Stmt) -> tuple[Stmt, ...]:
        if isinstance(stmt, Allocate) and stmt.buffer.type.nbytes > LARGE_SCRATCH_BYTES:
            self.workspace.append(stmt.buffer)
            return self.block(stmt.body)
        if isinstance(stmt, Store | Align | Prefetch):
            stmt = replace(stmt, buffer=self.moved.get(stmt.buffer, stmt.buffer))
        expressions = [self.expr(e) for e in stmt.expressions]
        return (stmt.rebuild(expressions, [self.block(b) for b in stmt.blocks]),)

    def expr(self, e: Expr) -> Expr:
        if e not in self.memo:
            children = [self.expr(c) for c in e.children()]
            if isinstance(e, Read) and isinstance(e.tensor, Buffer):
                self.memo[e] = Read(self.moved.get(e.tensor, e.tensor), tuple(children))
            else:
                self.memo[e] = rebuild(e, children) if children else e
        return self.memo[e]
