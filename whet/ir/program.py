"""Loop programs: how to compute, as statements over buffers.

Operators that no tensor expression can say (sort, scatter) supply a program, and schedules
turn tensor expressions into programs.  Statements are immutable and interned like
expressions; `str` gives readable text; `run` is the plain meaning, for tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from whet.core.dtypes import DType
from whet.core.errors import check
from whet.core.types import Array, Shape
from whet.ir.affine import substitute
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
from whet.ir.interning import Interned
from whet.ir.tensor import Tensor

LoopKind = Literal["serial", "parallel", "vector", "unroll"]
Scope = Literal["memory", "register"]


def row_major(shape: Shape) -> Shape:
    """Strides of a contiguous array, last axis fastest."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Buffer(Tensor):
    """Memory that statements read and write.

    Indices are logical; element (i, j, ...) lies at `offset + i * strides[0] + ...` elements
    from the base address, so layouts, borders and views are only strides (row-major when
    not given).  A buffer of scope `register` is a set of machine registers: its indices must
    be known after unrolling, and its last axis is the lanes of a vector.
    """

    name: str
    shape: Shape
    dtype: DType
    strides: Shape | None = None
    offset: int = 0
    scope: Scope = "memory"

    @property
    def element_strides(self) -> Shape:
        return row_major(self.shape) if self.strides is None else self.strides


class Stmt(metaclass=Interned):
    """Base of all statements."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(_lines(self))


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Store(Stmt):
    """buffer[indices] = value

    With `stream`, native code writes past the caches where the address of a vector allows it;
    that is a hint and changes nothing else.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    stream: bool = False


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Loop(Stmt):
    """for var in extent: body"""

    var: Var
    extent: Expr
    body: tuple[Stmt, ...]
    kind: LoopKind = "serial"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class While(Stmt):
    """while condition: body"""

    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class If(Stmt):
    """if condition: then, else: other"""

    condition: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Let(Stmt):
    """var = value, visible in the body"""

    var: Var
    value: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Align(Stmt):
    """var = elements from the start of the buffer to the first vector at an aligned address

    It is known when the memory is: a program must be right for every 0 <= var < lanes.
    """

    var: Var
    buffer: Buffer
    lanes: int
    body: tuple[Stmt, ...]


SCRATCH_LIMIT_BYTES = 512 << 10
"""Largest scratch buffer: native code keeps it on the stack of the thread that runs the body."""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Allocate(Stmt):
    """A scratch buffer that lives during the body; its contents start undefined."""

    buffer: Buffer
    body: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Transpose(Stmt):
    """tile = tile.T, for a square tile of registers whose extent is a power of two."""

    tile: Buffer


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Prefetch(Stmt):
    """A hint that buffer[indices] will be read soon.  It means nothing, even out of bounds."""

    buffer: Buffer
    indices: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Program(metaclass=Interned):
    """Statements with their parameters: inputs are read only, outputs start undefined.

    `workspace` lists buffers that the caller provides and whose contents mean nothing before
    and after.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    workspace: tuple[Buffer, ...] = ()

    def __str__(self) -> str:
        params = ", ".join(f"{b.name}: {b.type}" for b in self.inputs)
        results = ", ".join(f"{b.name}: {b.type}" for b in self.outputs)
        return "\n".join([f"program {self.name}({params}) -> ({results}):", *_block(self.body)])


def _block(body: Sequence[Stmt]) -> list[str]:
    return ["  " + line for stmt in body for line in _lines(stmt)]


def _lines(stmt: Stmt) -> list[str]:
    match stmt:
        case Store(buffer=buffer, indices=indices, value=value, stream=stream):
            word = "stream " if stream else ""
            return [f"{word}{buffer.name}[{', '.join(map(str, indices))}] = {value}"]
        case Loop(var=var, extent=extent, body=body, kind=kind):
            word = "for" if kind == "serial" else kind
            return [f"{word} {var} in {extent}:", *_block(body)]
        case While(condition=condition, body=body):
            return [f"while {condition}:", *_block(body)]
        case If(condition=condition, then=then, other=other):
            tail = ["else:", *_block(other)] if other else []
            return [f"if {condition}:", *_block(then), *tail]
        case Let(var=var, value=value, body=body):
            return [f"{var} = {value}", *(line for s in body for line in _lines(s))]
        case Align(var=var, buffer=buffer, lanes=lanes, body=body):
            first = f"{var} = align {buffer.name} to {lanes}"
            return [first, *(line for s in body for line in _lines(s))]
        case Allocate(buffer=buffer, body=body):
            where = "" if buffer.scope == "memory" else f" in {buffer.scope}s"
            first = f"{buffer.name} = allocate {buffer.type}{where}"
            return [first, *(line for s in body for line in _lines(s))]
        case Transpose(tile=tile):
            return [f"transpose {tile.name}"]
        case Prefetch(buffer=buffer, indices=indices):
            return [f"prefetch {buffer.name}[{', '.join(map(str, indices))}]"]
    raise AssertionError(type(stmt))


def substitute_block(body: Sequence[Stmt], values: Mapping[Expr, Expr]) -> tuple[Stmt, ...]:
    """The statements with variables replaced."""
    return tuple(_substitute(s, values) for s in body)


def _substitute(stmt: Stmt, values: Mapping[Expr, Expr]) -> Stmt:
    match stmt:
        case Store(buffer=buffer, indices=indices, value=value, stream=stream):
            at = tuple(substitute(i, values) for i in indices)
            return Store(buffer, at, substitute(value, values), stream)
        case Loop(var=var, extent=extent, body=body, kind=kind):
            return Loop(var, substitute(extent, values), substitute_block(body, values), kind)
        case If(condition=condition, then=then, other=other):
            return If(
                substitute(condition, values),
                substitute_block(then, values),
                substitute_block(other, values),
            )
        case Let(var=var, value=value, body=body):
            return Let(var, substitute(value, values), substitute_block(body, values))
        case Align(var=var, buffer=buffer, lanes=lanes, body=body):
            return Align(var, buffer, lanes, substitute_block(body, values))
        case Allocate(buffer=buffer, body=body):
            return Allocate(buffer, substitute_block(body, values))
        case While(condition=condition, body=body):
            return While(substitute(condition, values), substitute_block(body, values))
        case Transpose():
            return stmt
        case Prefetch(buffer=buffer, indices=indices):
            return Prefetch(buffer, tuple(substitute(i, values) for i in indices))
    raise AssertionError(type(stmt))


# ------------------------------------------------------------------------------------ meaning
def run(program: Program, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The outputs of the program, one Python step per scalar: for tests on small shapes."""
    memory: dict[Tensor, Array] = dict(zip(program.inputs, arrays, strict=True))
    for buffer in (*program.outputs, *program.workspace):
        memory[buffer] = np.zeros(buffer.shape, buffer.dtype.numpy)
    with np.errstate(all="ignore"):
        _run_block(program.body, memory, {})
    return tuple(memory[b] for b in program.outputs)


def _run_block(body: Sequence[Stmt], memory: dict[Tensor, Array], env: Mapping[Expr, Any]) -> None:
    for stmt in body:
        _run_stmt(stmt, memory, env)


def _run_stmt(stmt: Stmt, memory: dict[Tensor, Array], env: Mapping[Expr, Any]) -> None:
    match stmt:
        case Store(buffer=buffer, indices=indices, value=value):
            at = _position(buffer, indices, memory, env)
            memory[buffer][at] = _scalar(value, memory, env)
        case Loop(var=var, extent=extent, body=body):
            for step in range(int(_scalar(extent, memory, env))):
                _run_block(body, memory, {**env, var: np.int64(step)})
        case While(condition=condition, body=body):
            while _scalar(condition, memory, env):
                _run_block(body, memory, env)
        case If(condition=condition, then=then, other=other):
            _run_block(then if _scalar(condition, memory, env) else other, memory, env)
        case Let(var=var, value=value, body=body):
            _run_block(body, memory, {**env, var: _scalar(value, memory, env)})
        case Align(var=var, lanes=lanes, body=body):
            # Any number below would do; this one makes a program show what it does with it.
            _run_block(body, memory, {**env, var: np.int64(lanes // 2)})
        case Allocate(buffer=buffer, body=body):
            scratch = np.zeros(buffer.shape, buffer.dtype.numpy)
            _run_block(body, {**memory, buffer: scratch}, env)
        case Transpose(tile=tile):
            memory[tile][...] = memory[tile].T.copy()


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
            return np.asarray(_scalar(value, memory, env)).astype(dtype.numpy)[()]
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
