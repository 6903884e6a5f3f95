"""Programs as trees: the statements inside of others, found by name.

Loops are addressed by the name of their variable, which is unique in a program that primitives
work on; statements are interned, so a loop is its own address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from whet.core.errors import ScheduleError, check, fail
from whet.ir.expr import Const, Var
from whet.ir.program import Allocate, Block, Buffer, Loop, Program, Stmt, walk

Change = Callable[[Stmt], Sequence[Stmt] | None]
"""Gives the statements to put in the place of one, or None to look inside it."""


def with_blocks(stmt: Stmt, blocks: Sequence[Block]) -> Stmt:
    """The same statement around other blocks."""
    return stmt.rebuild(stmt.expressions, blocks)


def rewrite(block: Sequence[Stmt], change: Change) -> Block:
    """The statements with some replaced, from the root down."""
    done: list[Stmt] = []
    for stmt in block:
        changed = change(stmt)
        if changed is None:
            changed = (with_blocks(stmt, [rewrite(b, change) for b in stmt.blocks]),)
        done += changed
    return tuple(done)


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
        for inner in stmt.blocks:
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
