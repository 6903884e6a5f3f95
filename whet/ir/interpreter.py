"""The meaning of loop programs: one Python step per scalar.

It is what generated code is tested against, on small shapes: slow, and obvious.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whet.core.conversion import convert_array
from whet.core.errors import check
from whet.core.types import Array
from whet.ir.expr import (
    Axis,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Reinterpret,
    Select,
    Var,
)
from whet.ir.functions import FUNCTIONS, INFIX, REDUCERS
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
from whet.ir.tensor import Tensor


def run(program: Program, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The outputs of the program."""
    memory: dict[Tensor, Array] = dict(zip(program.inputs, arrays, strict=True))
    for buffer in (*program.outputs, *program.workspace):
        memory[buffer] = np.zeros(buffer.shape, buffer.dtype.numpy)
    with np.errstate(all="ignore"):
        run_block(program.body, memory, {})
    return tuple(memory[b] for b in program.outputs)


def run_block(body: Sequence[Stmt], memory: dict[Tensor, Array], env: Mapping[Expr, Any]) -> None:
    """Runs statements that read and change the memory, with the values of free variables."""
    for stmt in body:
        _run_stmt(stmt, memory, env)


def _run_stmt(stmt: Stmt, memory: dict[Tensor, Array], env: Mapping[Expr, Any]) -> None:
    match stmt:
        case Store(buffer=buffer, indices=indices, value=value):
            at = _position(buffer, indices, memory, env)
            memory[buffer][at] = _scalar(value, memory, env)
        case Loop(var=var, extent=extent, body=body):
            for step in range(int(_scalar(extent, memory, env))):
                run_block(body, memory, {**env, var: np.int64(step)})
        case While(condition=condition, body=body):
            while _scalar(condition, memory, env):
                run_block(body, memory, env)
        case If(condition=condition, then=then, other=other):
            run_block(then if _scalar(condition, memory, env) else other, memory, env)
        case Let(var=var, value=value, body=body):
            run_block(body, memory, {**env, var: _scalar(value, memory, env)})
        case Align(var=var, lanes=lanes, body=body):
            # Any number below would do; this one makes a program show what it does with it.
            run_block(body, memory, {**env, var: np.int64(lanes // 2)})
        case Allocate(buffer=buffer, body=body):
            scratch = np.zeros(buffer.shape, buffer.dtype.numpy)
            run_block(body, {**memory, buffer: scratch}, env)
        case Transpose(tile=tile):
            memory[tile][...] = memory[tile].T.copy()
        case Prefetch():
            pass
        case _:
            raise AssertionError(type(stmt))


def _position(
    tensor: Tensor, indices: Sequence[Expr], memory: dict[Tensor, Array], env: Mapping[Expr, Any]
) -> tuple[int, ...]:
    at = tuple(int(_scalar(i, memory, env)) for i in indices)
    check(
        all(0 <= i < d for i, d in zip(at, tensor.shape, strict=True)),
        "WH1302",
        f"'{tensor.name}' of shape {list(tensor.shape)} is accessed at {list(at)}",
    )
    return at


def _scalar(e: Expr, memory: dict[Tensor, Array], env: Mapping[Expr, Any]) -> Any:
    match e:
        case Const(value=value, dtype=dtype):
            return dtype.numpy.type(value)
        case Var():
            return env[e]
        case Binary(op=op, left=left, right=right):
            a = _scalar(left, memory, env)
            if op in ("and", "or") and bool(a) == (op == "or"):
                return a  # the right side may rely on the left one, as in Python
            return INFIX[op].numpy(a, _scalar(right, memory, env))
        case Call(name=name, args=args):
            value = FUNCTIONS[name](*(_scalar(a, memory, env) for a in args))
            return np.asarray(value).astype(e.dtype.numpy)[()]
        case Select(condition=condition, then=then, other=other):
            return _scalar(then if _scalar(condition, memory, env) else other, memory, env)
        case Cast(value=value, dtype=dtype):
            return convert_array(np.asarray(_scalar(value, memory, env)), dtype)[()]
        case Reinterpret(value=value, dtype=dtype):
            return np.asarray(_scalar(value, memory, env)).view(dtype.numpy)[()]
        case Read(tensor=tensor, indices=indices):
            return memory[tensor][_position(tensor, indices, memory, env)]
        case Axis():
            return env[e]
        case Reduce(kind=kind, axes=(axis,), value=value):
            values = [
                _scalar(value, memory, {**env, axis: np.int64(n)}) for n in range(axis.extent)
            ]
            return REDUCERS[kind].reduce(np.asarray(values))
    raise AssertionError(type(e))
