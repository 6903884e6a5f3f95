"""Statements exchanged for others, simplified under what loops and conditions around them say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields

from whet.ir.bounds import Interval, Ranges
from whet.ir.expr import Const
from whet.ir.program import Block, If, Loop, LoopKind, Program, Stmt
from whet.ir.simplify import assume, simplify
from whet.schedule.program.primitives.tree import path_to, with_blocks


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
        blocks = [_exchanged(b, old, new) for b in stmt.blocks]
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
            case _:
                expressions = [simplify(e, ranges) for e in stmt.expressions]
                done.append(stmt.rebuild(expressions, [_tidy(b, ranges) for b in stmt.blocks]))
    return tuple(done)
