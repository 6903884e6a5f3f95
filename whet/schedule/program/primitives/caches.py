"""Primitives that keep a part of a buffer close: cache_write and cache_read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields

from whet.core.errors import ScheduleError, check, fail
from whet.ir.affine import affine, free_symbols
from whet.ir.bounds import Interval, bounds
from whet.ir.expr import Expr, Read, Var, all_of, as_expr, const, select
from whet.ir.program import (
    Allocate,
    Block,
    Buffer,
    Loop,
    Program,
    Scope,
    Stmt,
    Store,
    substitute_block,
    walk,
)
from whet.schedule.program.loops import loop as nest_loop
from whet.schedule.program.primitives.accesses import (
    allocated_in,
    move_accesses,
    reads_in,
    stores_in,
    strides_like,
)
from whet.schedule.program.primitives.dependence import Access, Region, accesses, region_of
from whet.schedule.program.primitives.names import Names
from whet.schedule.program.primitives.replacing import replace, tidy
from whet.schedule.program.primitives.tree import (
    check_scratch_fits,
    extents_of,
    find_buffer,
    find_loop,
    path_to,
)


def cache_write(program: Program, buffer: str, loop: str, scope: Scope = "memory") -> Program:
    """What one iteration of a loop writes, kept in a local buffer and stored at its end.

    rewrite (y, j):
        for j in 8:                                  for j in 8:
          y[i, j] = 0.0                                y_local = allocate f32[1, 1]
          for k in 6:                         ->       y_local[0, 0] = 0.0
            y[i, j] = y[i, j] + f(i, j, k)             for k in 6: y_local[0, 0] = ...
                                                       y[i, j] = y_local[0, 0]

    If the iteration does not begin by writing it, the local buffer is loaded first.

    Requires: accesses in a box of fixed size; the stores to it not under conditions.  Registers
    need loops around the accesses that are unrolled or vectors already.
    Raises: WH2101, WH2102 (a vector loop), WH2105.
    """
    old, target = find_buffer(program, buffer), find_loop(program, loop)
    found = [a for a in accesses(target.body) if a.buffer is old]
    stores = [a for a in found if a.is_write]
    _check_outlives(old, target.body, loop)
    check(bool(stores), "WH2105", f"loop '{loop}' does not write '{buffer}'", kind=ScheduleError)
    check(not any(a.conditional for a in found), "WH2105",
          f"'{buffer}' is accessed under a condition in loop '{loop}'",
          kind=ScheduleError)  # fmt: skip
    region = _box(program, target, found, buffer)
    whole = [a for a in stores if _covers(a, target, region)]
    check(bool(whole), "WH2105", f"no single store covers what loop '{loop}' writes of '{buffer}'",
          kind=ScheduleError)  # fmt: skip
    if scope == "register":
        _check_registers(target, found, buffer)
    names = Names(program)
    shape = region.shape
    strides = strides_like(old, shape) if scope == "memory" else None
    local = Buffer(names.new(f"{buffer}_local"), shape, old.dtype, strides, scope=scope)
    first = found[0]
    body: list[Stmt] = []
    if not (first is whole[0] and _comes_first(first, target)):
        body += _copy(whole[0], target, names, region, local, load=True)
    body += move_accesses(target.body, old, local, lambda i: _minus(i, region.start))
    body += _copy(whole[0], target, names, region, local, load=False)
    return replace(program, target, (with_fields(target, body=(Allocate(local, tuple(body)),)),))


def _check_outlives(buffer: Buffer, block: Block, loop: str | None) -> None:
    where = "the program" if loop is None else f"loop '{loop}'"
    check(buffer not in allocated_in(block), "WH2105",
          f"'{buffer.name}' exists only inside {where}", kind=ScheduleError)  # fmt: skip


def _minus(indices: Sequence[Expr], start: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(i - s for i, s in zip(indices, start))


def _box(program: Program, target: Loop, found: Sequence[Access], name: str) -> Region:
    """The elements that an iteration touches, if they are a box that starts at a known place."""
    check_scratch_fits(target)
    region = region_of([a.indices for a in found], target.body)
    loops = [s for s in (*path_to(program.body, target), target) if isinstance(s, Loop)]
    known = {s.var for s in loops}
    if region is None or not all(free_symbols(s) <= known for s in region.start):
        fail("WH2105", f"what loop '{target.var}' touches of '{name}' is not a box of fixed size",
             kind=ScheduleError)  # fmt: skip
    return region


def _index_loops(access: Access, target: Loop) -> list[Loop]:
    """The loops inside the target whose variables the store's indices have, outermost first."""
    assert access.store is not None
    around = path_to(target.body, access.store)
    symbols = {s for i in access.indices for s in free_symbols(i)}
    return [s for s in around if isinstance(s, Loop) and s.var in symbols]


def _covers(access: Access, target: Loop, region: Region) -> bool:
    """True when the store reaches every element of the box: each loop moves one index only."""
    extents = extents_of(_index_loops(access, target))
    for dim, size in enumerate(region.shape):
        form = affine(access.indices[dim])
        reach = 0
        for var in sorted(extents, key=lambda v: abs(form.coefficient(v))):
            step = abs(form.coefficient(var))
            others = [i for n, i in enumerate(access.indices) if n != dim]
            if not step:
                continue
            if step > reach + 1 or any(var in free_symbols(i) for i in others):
                return False
            reach += step * (extents[var] - 1)
        if reach + 1 != size:
            return False
    return True


def _comes_first(first: Access, target: Loop) -> bool:
    """True when the store has written everything that an access may find."""
    stmt = next(s for s in target.body if any(x is first.store for x in walk((s,))))
    beside = [a for a in accesses((stmt,)) if a.buffer is first.buffer]
    return all(a.indices == first.indices for a in beside)


def _check_registers(target: Loop, found: Sequence[Access], name: str) -> None:
    """Registers have no addresses: all their indices must be known when code is written."""
    for stmt in walk(target.body):
        if isinstance(stmt, Loop) and stmt.kind == "serial":
            moving = any(stmt.var in free_symbols(i) for a in found for i in a.indices)
            check(not moving, "WH2105", f"'{name}' cannot be in registers: loop '{stmt.var}' "
                  "moves through it", hint="unroll or vectorize it first",
                  kind=ScheduleError)  # fmt: skip


def _copy(
    access: Access, target: Loop, names: Names, region: Region, local: Buffer, *, load: bool
) -> Sequence[Stmt]:
    """Loops like those around the store that bring its elements in or out."""
    around = _index_loops(access, target)
    variables: dict[Expr, Expr] = {s.var: names.var(s.var.name) for s in around}
    place = _minus(access.indices, region.start)
    if load:
        body: Block = (Store(local, place, Read(access.buffer, access.indices)),)
    else:
        body = (Store(access.buffer, access.indices, Read(local, place)),)
    body = substitute_block(body, variables)
    for old in reversed(around):
        new = variables[old.var]
        assert isinstance(new, Var)
        body = (Loop(new, old.extent, body, old.kind),)
    return body


def cache_read(
    program: Program, buffer: str, loop: str | None, order: Sequence[int] | None = None
) -> Program:
    """What one iteration of a loop reads, copied into a local buffer first (packing).

    rewrite (a, i, order 1, 0):
        for i in 4:                          for i in 4:
          for k in 6: S(a[i * 2, k])   ->      a_local = allocate f32[6, 1]
                                               for c in 1: for c_1 in 6:
                                                 a_local[c_1, c] = a[c + i * 2, c_1]
                                               for k in 6: S(a_local[k, 0])

    `order` says in which order the local buffer keeps the axes; without a loop the whole buffer
    is copied into the workspace once.

    Requires: reads in a box of fixed size; nothing inside writes the buffer; `order` names every
    axis once.
    Raises: WH2101, WH2102 (order, or a vector loop), WH2105.
    """
    old = find_buffer(program, buffer)
    order = tuple(range(len(old.shape))) if order is None else tuple(order)
    check(sorted(order) == list(range(len(old.shape))), "WH2102",
          f"{list(order)} is no order of the {len(old.shape)} axes of '{buffer}'",
          kind=ScheduleError)  # fmt: skip
    target = None if loop is None else find_loop(program, loop)
    inside = program.body if target is None else target.body
    _check_outlives(old, inside, loop)
    reads = [r for r in reads_in(inside) if r.tensor is old]
    written = any(s.buffer is old for s in stores_in(inside))
    check(bool(reads) and not written, "WH2105",
          f"'{buffer}' is not only read in {'the program' if loop is None else f'loop {loop!r}'}",
          kind=ScheduleError)  # fmt: skip
    if target is None:
        region = Region(tuple(as_expr(0) for _ in old.shape), old.shape)
    else:
        found = [Access(old, r.indices, False, False) for r in reads]
        region = _box(program, target, found, buffer)
    names = Names(program)
    shape = tuple(region.shape[n] for n in order)
    local = Buffer(names.new(f"{buffer}_local"), shape, old.dtype)
    around = [] if target is None else [*path_to(program.body, target), target]
    ranges: dict[Expr, Interval] = {v: Interval(0, n - 1) for v, n in extents_of(around).items()}
    fill = _fill(old, local, region, order, names, ranges)

    def at_local(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        moved = _minus(indices, region.start)
        return tuple(moved[n] for n in order)

    body = move_accesses(inside, old, local, at_local)
    if target is None:
        made = with_fields(program, body=(*fill, *body), workspace=(*program.workspace, local))
        return tidy(made)
    return replace(program, target, (with_fields(target, body=(Allocate(local, (*fill, *body)),)),))


def _fill(
    buffer: Buffer,
    local: Buffer,
    region: Region,
    order: Sequence[int],
    names: Names,
    ranges: dict[Expr, Interval],
) -> Block:
    """The loops that copy the box; outside of the buffer it holds zeros that nobody uses."""
    variables = [names.var("c") for _ in region.shape]
    places = tuple(s + v for s, v in zip(region.start, variables))
    known: dict[Expr, Interval] = dict(ranges)
    known.update({v: Interval(0, n - 1) for v, n in zip(variables, region.shape)})
    inside: list[Expr] = []
    for place, extent in zip(places, buffer.shape):
        reach = bounds(place, known)
        if reach.low < 0:
            inside.append(as_expr(0) <= place)
        if reach.high >= extent:
            inside.append(place < extent)
    value = Read(buffer, places)
    filled = select(all_of(inside), value, const(0, buffer.dtype)) if inside else value
    body: Block = (Store(local, tuple(variables[n] for n in order), filled),)
    for var, extent in zip(reversed(variables), reversed(region.shape)):
        body = (nest_loop(var, extent, *body),)
    return body
