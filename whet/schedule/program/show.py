"""Tasks and programs as text, the way TVM's auto-scheduler prints them.

A = PLACEHOLDER [64, 64]                    Placeholder: A, B
B = PLACEHOLDER [64, 64]                    parallel i.0@j.0 (0,4)
C(i, j) += (A[i, k]*B[k, j])          ->      for k.0 (0,16)
D(i, j) = max(C[i, j], 0f)                      vectorize j.2 (0,8)
                                                  C = ...
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.ir.expr import Axis, Binary, Call, Const, Expr, Read, Reduce, Select
from whet.ir.program import (
    Align,
    Allocate,
    If,
    Let,
    Loop,
    Prefetch,
    Program,
    Stmt,
    Store,
    Transpose,
    While,
)
from whet.ir.tensor import Compute, stages
from whet.tasks.task import Task

_WORDS = {"serial": "for", "parallel": "parallel", "vector": "vectorize", "unroll": "unroll"}


def show_task(task: Task) -> str:
    """The DAG of a task, a line per tensor; sums as updates."""
    lines: list[str] = []
    for tensor in stages(task.outputs):
        if not isinstance(tensor, Compute):
            lines.append(f"{tensor.name} = PLACEHOLDER {list(tensor.shape)}")
            continue
        axes = ", ".join(a.name for a in tensor.axes)
        body = tensor.body
        if isinstance(body, Reduce) and body.kind == "sum":
            lines.append(f"{tensor.name}({axes}) += {_infix(body.value)}")
        else:
            lines.append(f"{tensor.name}({axes}) = {_infix(body)}")
    return "\n".join(lines)


def _infix(e: Expr) -> str:
    """An expression with every operation in brackets, numbers with their type."""
    match e:
        case Binary(op="add" | "sub" | "mul" | "div" as op, left=left, right=right):
            sign = {"add": " + ", "sub": " - ", "mul": "*", "div": "/"}[op]
            return f"({_infix(left)}{sign}{_infix(right)})"
        case Call(name=name, args=args):
            return f"{name}({', '.join(map(_infix, args))})"
        case Read(tensor=tensor, indices=indices):
            return f"{tensor.name}[{', '.join(map(_infix, indices))}]"
        case Select(condition=condition, then=then, other=other):
            return f"select({condition}, {_infix(then)}, {_infix(other)})"
        case Axis(name=name):
            return name
        case Const(value=value, dtype=dtype) if dtype.is_float:
            return f"{value:g}f"
    return str(e)


def show_program(program: Program) -> str:
    """The loops of a program with their extents, and what each statement writes."""
    names = ", ".join(b.name for b in program.inputs)
    return "\n".join([f"Placeholder: {names}", *_outline(program.body)])


def _outline(body: Sequence[Stmt]) -> list[str]:
    return [line for stmt in body for line in _statement(stmt)]


def _within(body: Sequence[Stmt]) -> list[str]:
    return ["  " + line for line in _outline(body)]


def _statement(stmt: Stmt) -> list[str]:
    match stmt:
        case Store(buffer=buffer):
            return [f"{buffer.name} = ..."]
        case Loop(var=var, extent=extent, body=body, kind=kind):
            return [f"{_WORDS[kind]} {var} (0,{extent})", *_within(body)]
        case While(condition=condition, body=body):
            return [f"while {condition}", *_within(body)]
        case If(condition=condition, then=then, other=other):
            tail = ["else", *_within(other)] if other else []
            return [f"if {condition}", *_within(then), *tail]
        case Let(body=body) | Align(body=body) | Allocate(body=body):
            return _outline(body)
        case Transpose(tile=tile):
            return [f"transpose {tile.name}"]
        case Prefetch(buffer=buffer):
            return [f"prefetch {buffer.name}"]
    raise AssertionError(type(stmt))
