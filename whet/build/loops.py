"""Loop programs of operators, bound to the memory of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from whet.core.digest import digest_text
from whet.core.types import Shape
from whet.ir.affine import rebuild
from whet.ir.expr import Expr, Read
from whet.ir.program import Align, Allocate, Buffer, If, Let, Loop, Program, Stmt, Store, While

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
        match stmt:
            case Store(buffer=buffer, indices=indices, value=value, stream=stream):
                at = tuple(self.expr(i) for i in indices)
                return (Store(self.moved.get(buffer, buffer), at, self.expr(value), stream),)
            case Loop(var=var, extent=extent, body=body, kind=kind):
                return (Loop(var, self.expr(extent), self.block(body), kind),)
            case While(condition=condition, body=body):
                return (While(self.expr(condition), self.block(body)),)
            case If(condition=condition, then=then, other=other):
                return (If(self.expr(condition), self.block(then), self.block(other)),)
            case Let(var=var, value=value, body=body):
                return (Let(var, self.expr(value), self.block(body)),)
            case Align(var=var, buffer=buffer, lanes=lanes, body=body):
                return (Align(var, self.moved.get(buffer, buffer), lanes, self.block(body)),)
            case Allocate(buffer=buffer, body=body):
                if buffer.type.nbytes <= LARGE_SCRATCH_BYTES:
                    return (Allocate(buffer, self.block(body)),)
                self.workspace.append(buffer)
                return self.block(body)
        raise AssertionError(type(stmt))

    def expr(self, e: Expr) -> Expr:
        if e not in self.memo:
            children = [self.expr(c) for c in e.children()]
            if isinstance(e, Read) and isinstance(e.tensor, Buffer):
                self.memo[e] = Read(self.moved.get(e.tensor, e.tensor), tuple(children))
            else:
                self.memo[e] = rebuild(e, children) if children else e
        return self.memo[e]
