"""Loop programs: how to compute, as statements over buffers.

Operators that no tensor expression can say (sort, scatter) supply a program, and schedules
turn tensor expressions into programs.  Statements are immutable and interned like
expressions; `str` gives readable text; `ir.interpreter` is their plain meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from whet.core.dtypes import DType
from whet.core.types import Shape
from whet.ir.affine import substitute
from whet.ir.expr import Expr, Var
from whet.ir.interning import Interned
from whet.ir.tensor import Tensor

Block = tuple["Stmt", ...]
LoopKind = Literal[
    "serial", "parallel", "vector", "unroll", "grid", "cluster", "warp", "lane", "fragment"
]
"""How the rounds of a loop run; `whet.ir.threads` explains the last five."""
Scope = Literal["memory", "register", "shared", "fragment"]


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
    """Base of all statements.

    A statement says what it contains, so that a walk over programs need not know its kind, and a
    kind that says nothing is an error: `s.rebuild(s.expressions, s.blocks)` is `s`.
    """

    __slots__ = ()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions that the statement itself evaluates, in order; not those inside it."""
        raise NotImplementedError(type(self).__name__)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The statements inside it."""
        raise NotImplementedError(type(self).__name__)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Stmt:
        """The same statement with other expressions and blocks."""
        raise NotImplementedError(type(self).__name__)

    @property
    def text(self) -> str:
        """The statement in one line, where it has nothing inside and `_lines` does not know it."""
        raise NotImplementedError(type(self).__name__)

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

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.indices, self.value)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Store:
        *indices, value = expressions
        return Store(self.buffer, tuple(indices), value, self.stream)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Loop(Stmt):
    """for var in extent: body"""

    var: Var
    extent: Expr
    body: Block
    kind: LoopKind = "serial"

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.extent,)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.body,)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Loop:
        (extent,), (body,) = expressions, blocks
        return Loop(self.var, extent, body, self.kind)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class While(Stmt):
    """while condition: body"""

    condition: Expr
    body: Block

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.condition,)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.body,)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> While:
        (condition,), (body,) = expressions, blocks
        return While(condition, body)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class If(Stmt):
    """if condition: then, else: other"""

    condition: Expr
    then: Block
    other: Block = ()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.condition,)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.then, self.other)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> If:
        (condition,), (then, other) = expressions, blocks
        return If(condition, then, other)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Let(Stmt):
    """var = value, visible in the body"""

    var: Var
    value: Expr
    body: Block

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.value,)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.body,)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Let:
        (value,), (body,) = expressions, blocks
        return Let(self.var, value, body)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Align(Stmt):
    """var = elements from the start of the buffer to the first vector at an aligned address

    It is known when the memory is: a program must be right for every 0 <= var < lanes.
    """

    var: Var
    buffer: Buffer
    lanes: int
    body: Block

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.body,)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Align:
        (body,) = blocks
        return Align(self.var, self.buffer, self.lanes, body)


SCRATCH_LIMIT_BYTES = 512 << 10
"""Largest scratch buffer: native code keeps it on the stack of the thread that runs the body."""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Allocate(Stmt):
    """A scratch buffer that lives during the body; its contents start undefined."""

    buffer: Buffer
    body: Block

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.body,)

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Allocate:
        (body,) = blocks
        return Allocate(self.buffer, body)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Transpose(Stmt):
    """tile = tile.T, for a square tile of registers whose extent is a power of two."""

    tile: Buffer

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Transpose:
        return self


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Prefetch(Stmt):
    """A hint that buffer[indices] will be read soon.  It means nothing, even out of bounds."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.indices

    @property
    def blocks(self) -> tuple[Block, ...]:
        return ()

    def rebuild(self, expressions: Sequence[Expr], blocks: Sequence[Block]) -> Prefetch:
        return Prefetch(self.buffer, tuple(expressions))


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Program(metaclass=Interned):
    """Statements with their parameters: inputs are read only, outputs start undefined.

    `workspace` lists buffers that the caller provides and whose contents mean nothing before
    and after.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Block
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
            where = _WHERE[buffer.scope]
            first = f"{buffer.name} = allocate {buffer.type}{where}"
            return [first, *(line for s in body for line in _lines(s))]
        case Transpose(tile=tile):
            return [f"transpose {tile.name}"]
        case Prefetch(buffer=buffer, indices=indices):
            return [f"prefetch {buffer.name}[{', '.join(map(str, indices))}]"]
    return [stmt.text]


_WHERE: Mapping[Scope, str] = {
    "memory": "", "register": " in registers", "shared": " in shared", "fragment": " in fragments"
}  # fmt: skip


def walk(block: Sequence[Stmt]) -> Iterator[Stmt]:
    """Every statement, outer ones first, in the order of the text."""
    for stmt in block:
        yield stmt
        for inner in stmt.blocks:
            yield from walk(inner)


def substitute_block(block: Sequence[Stmt], values: Mapping[Expr, Expr]) -> Block:
    """The statements with variables replaced."""
    return tuple(
        s.rebuild(
            [substitute(e, values) for e in s.expressions],
            [substitute_block(b, values) for b in s.blocks],
        )
        for s in block
    )
