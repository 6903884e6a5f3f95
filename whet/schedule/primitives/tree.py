"""Programs as trees: find a loop, replace it, map expressions, invent names.

Loops are addressed by the name of their variable, which is unique in a program that primitives
work on; statements are interned, so a loop is its own address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from itertools import pairwise

from whet.core.errors import ScheduleError, check, fail
from whet.core.types import Shape
from whet.ir.affine import substitute
from whet.ir.bounds import Interval, Ranges
from whet.ir.expr import Const, Expr, Read, Var
from whet.ir.program import (
    Align,
    Allocate,
    Buffer,
    If,
    Let,
    Loop,
    LoopKind,
    Prefetch,
    Program,
    Stmt,
    Store,
    While,
)
from whet.ir.simplify import assume, simplify
from whet.ir.tensor import subexpressions
from whet.schedule.access import map_expr

Block = tuple[Stmt, ...]
Change = Callable[[Stmt], Sequence[Stmt] | None]
"""Gives the statements to put in the place of one, or None to look inside it."""


# ----------------------------------------------------------------------------------- structure
def blocks_of(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks of statements inside a statement."""
    match stmt:
        case Loop(body=b) | While(body=b) | Let(body=b) | Align(body=b) | Allocate(body=b):
            return (b,)
        case If(then=then, other=other):
            return (then, other)
    return ()


def with_blocks(stmt: Stmt, blocks: Sequence[Block]) -> Stmt:
    """The same statement around other blocks."""
    match stmt:
        case Loop() | While() | Let() | Align() | Allocate():
            return with_fields(stmt, body=blocks[0])
        case If():
            return with_fields(stmt, then=blocks[0], other=blocks[1])
    return stmt


def walk(block: Sequence[Stmt]) -> Iterator[Stmt]:
    """Every statement, outer ones first, in the order of the text."""
    for stmt in block:
        yield stmt
        for inner in blocks_of(stmt):
            yield from walk(inner)


def rewrite(block: Sequence[Stmt], change: Change) -> Block:
    """The statements with some replaced, from the root down."""
    done: list[Stmt] = []
    for stmt in block:
        changed = change(stmt)
        if changed is None:
            inner = [rewrite(b, change) for b in blocks_of(stmt)]
            changed = (with_blocks(stmt, inner),) if inner else (stmt,)
        done += changed
    return tuple(done)


def replace(program: Program, old: Stmt, new: Sequence[Stmt]) -> Program:
    """The program with one statement replaced, the new ones simplified under what is around."""
    path = path_to(program.body, old)
    known: Ranges = {}
    for stmt, inner in zip(path, (*path[1:], old)):
        known = _inside(stmt, known, inner)
    return _put(program, path, old, _tidy(new, known))


def mark(program: Program, old: Loop, kind: LoopKind) -> Program:
    """The program with one loop of another kind."""
    return _put(program, path_to(program.body, old), old, (with_fields(old, kind=kind),))


def _put(program: Program, path: Sequence[Stmt], old: Stmt, new: Block) -> Program:
    """The program with a statement replaced that lies in the statements of the path."""
    for stmt in reversed(path):
        blocks = [_exchanged(b, old, new) for b in blocks_of(stmt)]
        old, new = stmt, (with_blocks(stmt, blocks),)
    return with_fields(program, body=_exchanged(program.body, old, new))


def _exchanged(block: Block, old: Stmt, new: Block) -> Block:
    return tuple(s for x in block for s in (new if x is old else (x,)))


def _inside(stmt: Stmt, known: Ranges, inner: Stmt) -> Ranges:
    """What is known inside a statement, of which `inner` is a part."""
    match stmt:
        case Loop(var=var, extent=Const(value=extent)) if extent > 0:
            return {**known, var: Interval(0, int(extent) - 1)}
        case If(condition=condition, then=then):
            return assume(known, condition, holds=any(s is inner for s in then))
    return known


def find_loop(program: Program, name: str) -> Loop:
    """The loop over the variable of that name."""
    found = [s for s in walk(program.body) if isinstance(s, Loop) and s.var.name == name]
    loops = dict.fromkeys(s.var.name for s in walk(program.body) if isinstance(s, Loop))
    if not found:
        fail("WH2101", f"there is no loop '{name}'", hint=f"loops are {', '.join(loops)}",
             kind=ScheduleError)  # fmt: skip
    check(len(found) == 1, "WH2101", f"there are {len(found)} loops '{name}'", kind=ScheduleError)
    return found[0]


def find_buffer(program: Program, name: str) -> Buffer:
    """The buffer of that name: a parameter, workspace, or one that is allocated."""
    inner = [s.buffer for s in walk(program.body) if isinstance(s, Allocate)]
    known = dict.fromkeys([*program.inputs, *program.outputs, *program.workspace, *inner])
    found = [b for b in known if b.name == name]
    check(len(found) == 1, "WH2101", f"there is no single buffer '{name}'",
          hint=f"buffers are {', '.join(b.name for b in known)}", kind=ScheduleError)  # fmt: skip
    return found[0]


def path_to(block: Sequence[Stmt], target: Stmt) -> tuple[Stmt, ...]:
    """The statements around the target, outermost first."""
    for stmt in block:
        if stmt is target:
            return ()
        for inner in blocks_of(stmt):
            if any(s is target for s in walk(inner)):
                return (stmt, *path_to(inner, target))
    raise AssertionError("the statement is not in the block")


def static_extent(loop: Loop) -> int:
    """The extent of a loop, which must be known."""
    extent = loop.extent
    check(isinstance(extent, Const), "WH2102", f"the extent {extent} of loop '{loop.var}' is not "
          "known", kind=ScheduleError)  # fmt: skip
    assert isinstance(extent, Const)
    return int(extent.value)


def check_scratch_fits(target: Loop) -> None:
    """Lanes of a vector share their memory, so they can have no scratch buffers of their own."""
    check(target.kind != "vector", "WH2102", f"loop '{target.var}' is vector already",
          hint="keep buffers local before loops become vectors", kind=ScheduleError)  # fmt: skip


def extents_of(stmts: Sequence[Stmt]) -> dict[Var, int]:
    """The loops among the statements with their extents, where known."""
    loops = [s for s in stmts if isinstance(s, Loop)]
    return {s.var: int(s.extent.value) for s in loops if isinstance(s.extent, Const)}


def perfect_nest(program: Program, names: Sequence[str]) -> list[Loop]:
    """The loops of these names, outermost first; each must be all that the one before does."""
    found = [find_loop(program, name) for name in names]
    found.sort(key=lambda loop: len(path_to(program.body, loop)))
    for outer, inner in pairwise(found):
        check(outer.body == (inner,), "WH2103", f"loop '{inner.var}' is not all that loop "
              f"'{outer.var}' does", kind=ScheduleError)  # fmt: skip
    return found


# --------------------------------------------------------------------------------- expressions
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


def tidy(program: Program) -> Program:
    """The program with all expressions simplified under what loops and conditions say."""
    return with_fields(program, body=_tidy(program.body, {}))


def _tidy(block: Sequence[Stmt], ranges: Ranges) -> Block:
    done: list[Stmt] = []
    for stmt in block:
        match stmt:
            case Loop(var=var, extent=extent, body=body, kind=kind):
                extent = simplify(extent, ranges)
                known: Ranges = ranges
                if isinstance(extent, Const) and extent.value > 0:
                    known = {**ranges, var: Interval(0, int(extent.value) - 1)}
                done.append(Loop(var, extent, _tidy(body, known), kind))
            case If(condition=condition, then=then, other=other):
                condition = simplify(condition, ranges)
                if isinstance(condition, Const):
                    done += _tidy(then if condition.value else other, ranges)
                else:
                    yes = _tidy(then, assume(ranges, condition))
                    no = _tidy(other, assume(ranges, condition, holds=False))
                    done.append(If(condition, yes, no))
            case Store() | Prefetch():
                done += map_block((stmt,), lambda e: simplify(e, ranges))
            case _:
                (plain,) = map_block((with_blocks(stmt, [() for _ in blocks_of(stmt)]),),
                                     lambda e: simplify(e, ranges))  # fmt: skip
                done.append(with_blocks(plain, [_tidy(b, ranges) for b in blocks_of(stmt)]))
    return tuple(done)


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


# --------------------------------------------------------------------------------------- names
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
        stmt = with_blocks(stmt, [tuple(map(visit, b)) for b in blocks_of(stmt)])
        if isinstance(stmt, (Loop, Let)):
            var = variables.get(stmt.var, stmt.var)
            assert isinstance(var, Var)
            return with_fields(stmt, var=var)
        if isinstance(stmt, Allocate):
            return with_fields(stmt, buffer=buffers.get(stmt.buffer, stmt.buffer))
        return stmt

    return tuple(map(visit, block))
