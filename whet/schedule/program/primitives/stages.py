"""Primitives on stages: compute a producer inside its consumer, or write it into its readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace as with_fields

from whet.core.errors import ScheduleError, check, fail
from whet.ir.affine import free_symbols, substitute
from whet.ir.bounds import Interval, bounds
from whet.ir.expr import Const, Expr, Read, Var, all_of, as_expr
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
)
from whet.ir.tensor import subexpressions
from whet.schedule.program.access import map_expr
from whet.schedule.program.loops import loop as nest_loop
from whet.schedule.program.primitives.accesses import (
    map_block,
    move_accesses,
    reads_in,
    stores_in,
    strides_like,
)
from whet.schedule.program.primitives.dependence import Region, region_of
from whet.schedule.program.primitives.replacing import replace, tidy
from whet.schedule.program.primitives.tree import (
    check_scratch_fits,
    extents_of,
    find_buffer,
    find_loop,
    path_to,
    static_extent,
)


@dataclass(frozen=True, eq=False)
class _Nest:
    """The statement that defines a whole buffer: loops over its axes around `body`.

    An axis of extent 1 may have no variable: its index is 0.
    """

    stmt: Stmt
    axes: tuple[Var | None, ...]
    body: Block


def _defining_nest(program: Program, buffer: Buffer) -> _Nest:
    """The only top-level statement that writes the buffer, element by element."""
    check(buffer in program.workspace, "WH2105", f"'{buffer.name}' is not an intermediate stage",
          kind=ScheduleError)  # fmt: skip
    found = [s for s in program.body if any(x.buffer is buffer for x in stores_in((s,)))]
    check(len(found) == 1 and all(x.buffer is buffer for x in stores_in(found)), "WH2105",
          f"'{buffer.name}' is not written by a statement of its own",
          kind=ScheduleError)  # fmt: skip
    (stmt,) = found
    index = stores_in(found)[0].indices
    same = all(x.indices == index for x in stores_in(found))
    own = all(r.indices == index for r in reads_in(found) if r.tensor is buffer)
    axes: list[Var] = []
    body: Block = (stmt,)
    while len(body) == 1 and isinstance(body[0], Loop):
        inner = body[0]
        if inner.var not in index and static_extent(inner) > 1:
            break
        if inner.var in index:
            if static_extent(inner) != buffer.shape[index.index(inner.var)]:
                break
            axes.append(inner.var)
        body = inner.body
    moving = [i for i in index if not isinstance(i, Const)]
    check(same and own and sorted(map(str, moving)) == sorted(map(str, axes)), "WH2105",
          f"the loops over '{buffer.name}' have been changed already",
          hint="move or inline a stage before its loops are split", kind=ScheduleError)  # fmt: skip
    return _Nest(stmt, tuple(i if isinstance(i, Var) else None for i in index), body)


def inline(program: Program, buffer: str) -> Program:
    """The defining expression of a buffer in the place of every read of it.

    rewrite:
        for i in 4: t[i] = x[i] * 2.0
        for i_1 in 4: y[i_1] = t[i_1] + 1.0    ->    for i_1 in 4: y[i_1] = x[i_1] * 2.0 + 1.0

    Requires: an intermediate that one unsplit nest defines by one store each, not a reduction;
    what it reads does not change afterwards.
    Raises: WH2101 (no such buffer), WH2105 (not defined like that).
    """
    old = find_buffer(program, buffer)
    nest = _defining_nest(program, old)
    store = nest.body[0]
    check(len(nest.body) == 1 and isinstance(store, Store), "WH2105",
          f"'{buffer}' is not defined by one expression", hint="a reduction can be moved with "
          "compute_at", kind=ScheduleError)  # fmt: skip
    assert isinstance(store, Store)
    place = next(n for n, s in enumerate(program.body) if s is nest.stmt)
    later = {s.buffer for s in stores_in(program.body[place:])}
    used = {x.tensor for x in subexpressions(store.value) if isinstance(x, Read)}
    check(not used & later, "WH2105", f"what defines '{buffer}' is changed afterwards",
          kind=ScheduleError)  # fmt: skip

    def value(e: Expr) -> Expr:
        def change(x: Expr) -> Expr | None:
            if isinstance(x, Read) and x.tensor is old:
                at = [value(i) for i in x.indices]
                places = {v: i for v, i in zip(nest.axes, at) if v is not None}
                return substitute(store.value, places)
            return None

        return map_expr(e, change)

    body = map_block(tuple(s for s in program.body if s is not nest.stmt), value)
    rest = tuple(b for b in program.workspace if b is not old)
    return tidy(with_fields(program, body=body, workspace=rest))


def compute_at(program: Program, buffer: str, loop: str) -> Program:
    """The nest that defines a buffer moved into a loop of its reader, for what is read there.

    rewrite (t, i_1):
        for i in 4: for j in 8: t[i, j] = f(i, j)
        for i_1 in 4: for j_1 in 8: y[i_1, j_1] = t[i_1, j_1] + 1.0
            ->
        for i_1 in 4:
          t = allocate f32[1, 8]
          for i in 1: for j in 8: t[i, j] = f(i + i_1, j)
          for j_1 in 8: y[i_1, j_1] = t[0, j_1] + 1.0

    Requires: an intermediate that one unsplit nest defines; all its reads lie in the loop, in a
    box whose size does not change; what defines it does not change in between.
    Raises: WH2101, WH2102 (a vector loop), WH2105.
    """
    old = find_buffer(program, buffer)
    nest = _defining_nest(program, old)
    target = find_loop(program, loop)
    check_scratch_fits(target)
    inside = [r for r in reads_in(target.body) if r.tensor is old]
    own = {r for r in reads_in((nest.stmt,)) if r.tensor is old}
    elsewhere = [r for r in reads_in(program.body) if r.tensor is old and r not in own]
    counted = len(inside) == len(elsewhere)
    check(bool(inside) and counted, "WH2105", f"'{buffer}' is not read in loop '{loop}' alone",
          kind=ScheduleError)  # fmt: skip
    _check_unchanged(program, nest, target, buffer)
    region = region_of([r.indices for r in inside], target.body)
    if region is None or not _is_visible(region, program, target):
        fail("WH2105", f"what loop '{loop}' reads of '{buffer}' is not a box of fixed size",
             kind=ScheduleError)  # fmt: skip
    local = Buffer(old.name, region.shape, old.dtype, strides_like(old, region.shape))
    produce = _produce(nest, old, local, region, program, target)
    consume = move_accesses(
        target.body, old, local, lambda i: tuple(x - s for x, s in zip(i, region.start))
    )
    new = with_fields(target, body=(Allocate(local, (*produce, *consume)),))
    rest = tuple(b for b in program.workspace if b is not old)
    body = tuple(s for s in program.body if s is not nest.stmt)
    return replace(with_fields(program, body=body, workspace=rest), target, (new,))


def _check_unchanged(program: Program, nest: _Nest, target: Loop, name: str) -> None:
    """Between the nest and the loop nothing may write what the nest reads."""
    used = {r.tensor for r in reads_in((nest.stmt,))} - {s.buffer for s in stores_in((nest.stmt,))}
    around = {*path_to(program.body, target), target}
    first = next(n for n, s in enumerate(program.body) if s is nest.stmt)
    last = next(n for n, s in enumerate(program.body) if s in around)
    changed = {s.buffer for s in stores_in(program.body[first + 1 : last + 1])}
    check(first < last and not used & changed, "WH2105",
          f"what defines '{name}' is changed before loop '{target.var}'",
          kind=ScheduleError)  # fmt: skip


def _is_visible(region: Region, program: Program, target: Loop) -> bool:
    """True when the box begins at a place that is known where the loop's body begins."""
    loops = [s for s in (*path_to(program.body, target), target) if isinstance(s, Loop)]
    known = {s.var for s in loops}
    return all(free_symbols(start) <= known for start in region.start)


def _produce(
    nest: _Nest,
    buffer: Buffer,
    local: Buffer,
    region: Region,
    program: Program,
    target: Loop,
) -> Sequence[Stmt]:
    """The nest over the box alone; positions outside the buffer are left out."""
    # The nest leaves its old place, so its names are free for the new one.
    boxes = zip(nest.axes, region.start, region.shape, buffer.shape)
    axes = [(v, start, size, extent) for v, start, size, extent in boxes if v is not None]
    places: dict[Expr, Expr] = {v: start + v for v, start, _, _ in axes}
    body = substitute_block(nest.body, places)
    moved = move_accesses(
        body, buffer, local, lambda i: tuple(x - s for x, s in zip(i, region.start))
    )
    ranges: dict[Expr, Interval] = {
        v: Interval(0, n - 1)
        for v, n in extents_of([*path_to(program.body, target), target]).items()
    }
    ranges.update({v: Interval(0, size - 1) for v, _, size, _ in axes})
    inside: list[Expr] = []
    for v, _, _, extent in axes:
        reach = bounds(places[v], ranges)
        if reach.low < 0:
            inside.append(as_expr(0) <= places[v])
        if reach.high >= extent:
            inside.append(places[v] < extent)
    result: Block = (If(all_of(inside), moved),) if inside else moved
    for v, _, size, _ in reversed(axes):
        result = (nest_loop(v, size, *result),)
    return result
