"""Reduction factorization: partial results side by side, combined at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from itertools import pairwise
from typing import Literal

from whet.core.errors import ScheduleError, check, fail
from whet.ir.affine import free_symbols
from whet.ir.expr import Const, Expr, Read, Var
from whet.ir.program import (
    Allocate,
    Block,
    Buffer,
    If,
    Loop,
    Program,
    Stmt,
    Store,
    substitute_block,
    walk,
)
from whet.schedule.program.accumulate import combine
from whet.schedule.program.loops import identity_element, loop as nest_loop
from whet.schedule.program.primitives.accesses import reads_in, stores_in
from whet.schedule.program.primitives.dependence import Update, as_update
from whet.schedule.program.primitives.names import Names
from whet.schedule.program.primitives.replacing import replace, tidy
from whet.schedule.program.primitives.tree import (
    find_loop,
    path_to,
    rewrite,
    static_extent,
    with_blocks,
)

Variant = Literal["local", "stage"]


def rfactor(program: Program, loop: str, variant: Variant = "local") -> Program:
    """A loop of a reduction made free: every step of it gets a partial result of its own.

    rewrite (ki):
        y[i] = 0.0
        for ko in 8: for ki in 4: y[i] = y[i] + x[i, ko * 4 + ki]

        local     y_part = allocate f32[4]
                  for r in 4: y_part[r] = 0.0
                  for ko in 8: for ki in 4: y_part[ki] = y_part[ki] + x[i, ko * 4 + ki]
                  y[i] = 0.0
                  for r_1 in 4: y[i] = y[i] + y_part[r_1]

        stage     for ki in 4: for i in 16:                     (y_part in the workspace)
                    y_part[ki, i] = 0.0
                    for ko in 8: y_part[ki, i] = y_part[ki, i] + x[i, ko * 4 + ki]
                  for i_1 in 16: y[i_1] = 0.0; for r in 4: y[i_1] = y[i_1] + y_part[r, i_1]

    `local` suits lanes (ki becomes a vector loop), `stage` suits threads (ki becomes parallel).

    Requires: the loop lies in a reduction: a start value is stored, then a nest combines into
    the same element and does nothing else.  `stage` also needs that the loops around are the
    axes of the result.
    Raises: WH2101, WH2102 (extent), WH2106 (not such a reduction).
    """
    old = find_loop(program, loop)
    extent = static_extent(old)
    update = _only_update(old)
    start, nest = _reduction_around(program, old, update)
    alone = all(isinstance(s, (Loop, If, Store)) for s in walk((nest,)))
    check(alone and stores_in((nest,)) == [update.store], "WH2106",
          f"the loops around '{loop}' do more than combine into one element",
          kind=ScheduleError)  # fmt: skip
    if variant == "local":
        return _local(program, old, extent, update, start, nest)
    return _stage(program, old, extent, update, start, nest)


def _only_update(old: Loop) -> Update:
    stores = stores_in((old,))
    update = as_update(stores[0]) if len(stores) == 1 else None
    if update is None:
        fail("WH2106", f"loop '{old.var}' does not only combine into one element",
             kind=ScheduleError)  # fmt: skip
    free = any(old.var in free_symbols(i) for i in update.store.indices)
    check(not free and old.kind == "serial", "WH2106", f"loop '{old.var}' is not reduced",
          kind=ScheduleError)  # fmt: skip
    return update


def _reduction_around(program: Program, old: Loop, update: Update) -> tuple[Store, Stmt]:
    """The start value and the nest that the loop lies in."""
    around = (*path_to(program.body, old), old)
    blocks = [program.body, *(b for s in around for b in s.blocks)]
    for block in blocks:
        for first, second in pairwise(block):
            if second in around and isinstance(first, Store):
                same = first.buffer is update.store.buffer
                if same and first.indices == update.store.indices:
                    neutral = identity_element(update.kind, first.buffer.dtype)
                    check(first.value is neutral, "WH2106", f"the reduction over '{old.var}' "
                          f"starts from {first.value}", kind=ScheduleError)  # fmt: skip
                    return first, second
    fail("WH2106", f"the reduction over loop '{old.var}' has no start value beside it",
         hint="its loops must not be moved around the start value", kind=ScheduleError)  # fmt: skip


def _moved(nest: Stmt, update: Update, place: Buffer, at: tuple[Expr, ...]) -> Stmt:
    """The nest combining into another place."""
    new = Store(place, at, combine(update.kind, Read(place, at), update.value))

    (moved,) = rewrite((nest,), lambda stmt: (new,) if stmt is update.store else None)
    return moved


def _local(
    program: Program, old: Loop, extent: int, update: Update, start: Store, nest: Stmt
) -> Program:
    names = Names(program)
    part = Buffer(names.new(f"{start.buffer.name}_part"), (extent,), start.buffer.dtype)
    first, last = names.var("r"), names.var("r")
    final = Store(
        start.buffer,
        start.indices,
        combine(update.kind, Read(start.buffer, start.indices), part[last]),
    )
    zero = Store(part, (first,), start.value)
    new = Allocate(
        part,
        (
            nest_loop(first, extent, zero),
            _moved(nest, update, part, (old.var,)),
            start,
            nest_loop(last, extent, final),
        ),
    )
    made = _replace_pair(program.body, start, nest, (new,))
    return tidy(with_fields(program, body=made))


def _replace_pair(block: Sequence[Stmt], start: Store, nest: Stmt, new: Sequence[Stmt]) -> Block:
    """The block with the start value and the nest behind it replaced."""
    done: list[Stmt] = []
    skip = False
    for n, stmt in enumerate(block):
        if skip:
            skip = False
            continue
        if stmt is start and n + 1 < len(block) and block[n + 1] is nest:
            done += new
            skip = True
            continue
        inner = [_replace_pair(b, start, nest, new) for b in stmt.blocks]
        done.append(with_blocks(stmt, inner))
    return tuple(done)


def _stage(
    program: Program, old: Loop, extent: int, update: Update, start: Store, nest: Stmt
) -> Program:
    buffer = start.buffer
    around = path_to(program.body, nest)
    loops = [s for s in around if isinstance(s, Loop)]
    index = start.indices
    moving = sorted(str(i) for i in index if not isinstance(i, Const))
    axes = sorted(str(s.var) for s in loops if s.var in index or static_extent(s) > 1)
    bodies = [s.body for s in loops]
    plain = len(loops) == len(around) and all(len(b) == 1 for b in bodies[:-1])
    alone = plain and (not loops or bodies[-1] == (start, nest))
    check(alone and axes == moving, "WH2106",
          f"the loops around the reduction over '{old.var}' are not the axes of "
          f"'{buffer.name}' alone", kind=ScheduleError)  # fmt: skip
    check(not any(r.tensor is buffer for r in reads_in((nest,)) if r is not _own(update)),
          "WH2106", f"the reduction reads '{buffer.name}' itself", kind=ScheduleError)  # fmt: skip
    names = Names(program)
    shape = (extent, *buffer.shape)
    part = Buffer(names.new(f"{buffer.name}_part"), shape, buffer.dtype)
    at = (old.var, *start.indices)
    inside = _without(_moved(nest, update, part, at), old.var)
    first: Block = (Store(part, at, start.value), *inside)
    last = names.var("r")
    final: Block = (
        start,
        nest_loop(last, extent, Store(
            buffer, start.indices,
            combine(update.kind, Read(buffer, start.indices), part[(last, *start.indices)]),
        )),
    )  # fmt: skip
    fresh = {s.var: names.var(s.var.name) for s in loops}
    final = substitute_block(final, dict(fresh.items()))
    for s in reversed(loops):
        first = (Loop(s.var, s.extent, first),)
        final = (Loop(fresh[s.var], s.extent, final),)
    first = (nest_loop(old.var, extent, *first),)
    made = with_fields(program, workspace=(*program.workspace, part))
    if loops:
        return replace(made, loops[0], (*first, *final))
    return tidy(with_fields(made, body=_replace_pair(made.body, start, nest, (*first, *final))))


def _own(update: Update) -> Read:
    read = Read(update.store.buffer, update.store.indices)
    assert isinstance(read, Read)
    return read


def _without(stmt: Stmt, var: Var) -> Block:
    """The statement with the loop over the variable taken away from around its body."""
    return rewrite((stmt,), lambda s: s.body if isinstance(s, Loop) and s.var is var else None)
