"""Which elements statements touch: the legality of schedule steps.

Everything here is conservative: what cannot be shown is taken to be false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from whet.ir.affine import Affine, affine, combine, free_symbols, interval
from whet.ir.bounds import Interval
from whet.ir.expr import Binary, Call, Expr, Read, Var
from whet.ir.program import (
    Align,
    Buffer,
    If,
    Let,
    Loop,
    Prefetch,
    Stmt,
    Store,
    While,
    row_major,
    walk,
)
from whet.ir.simplify import simplify
from whet.ir.tensor import subexpressions
from whet.schedule.program.primitives.accesses import allocated_in
from whet.schedule.program.primitives.tree import extents_of


@dataclass(frozen=True, eq=False)
class Access:
    """One read or write of an element, in the order in which they happen."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    conditional: bool
    store: Store | None = None


def accesses(block: Sequence[Stmt], conditional: bool = False) -> Iterator[Access]:
    """All accesses of the statements; those of a store's value come before its own."""
    for stmt in block:
        if isinstance(stmt, Prefetch):
            continue
        for e in stmt.expressions:
            for x in subexpressions(e):
                if isinstance(x, Read) and isinstance(x.tensor, Buffer):
                    yield Access(x.tensor, x.indices, False, conditional)
        if isinstance(stmt, Store):
            yield Access(stmt.buffer, stmt.indices, True, conditional, stmt)
        under = conditional or isinstance(stmt, (If, While))
        for inner in stmt.blocks:
            yield from accesses(inner, under)


def written_outside(block: Sequence[Stmt]) -> dict[Buffer, list[Access]]:
    """The buffers that outlive the block and are written in it, with all accesses to them."""
    private = allocated_in(block)
    every = list(accesses(block))
    written = dict.fromkeys(a.buffer for a in every if a.is_write and a.buffer not in private)
    return {b: [a for a in every if a.buffer is b] for b in written}


# ------------------------------------------------------------------------------- independence
def are_independent(loops: Sequence[Loop]) -> bool:
    """True when no two different iterations of the nest touch an element that one writes.

    The loops are perfectly nested, outermost first; loops inside them are part of an iteration.
    """
    body = loops[-1].body
    own = extents_of(loops)
    if len(own) < len(loops):
        return False
    inner = _inner_extents(body)
    return inner is not None and all(
        _separate(found, own, inner) for found in written_outside(body).values()
    )


def _inner_extents(body: Sequence[Stmt]) -> dict[Var, int] | None:
    """The loops in a block with their extents; None where something else may vary."""
    inside = list(walk(body))
    loops = [s for s in inside if isinstance(s, Loop)]
    extents = extents_of(loops)
    if len(extents) < len(loops) or any(isinstance(s, (While, Let, Align)) for s in inside):
        return None
    return extents


def _separate(found: Sequence[Access], own: Mapping[Var, int], inner: Mapping[Var, int]) -> bool:
    """True when accesses of different iterations differ in some index, or in their number."""
    buffer = found[0].buffer
    wanted = {v for v, n in own.items() if n > 1}
    separated: set[Var] = set()
    for dim in range(len(buffer.shape)):
        separated |= _separated([affine(a.indices[dim]) for a in found], own, inner)
    if separated >= wanted:
        return True
    # Most nests are done by now: to simplify numbers of elements is the most expensive part.
    ranges: dict[Expr, Interval] = {
        v: Interval(0, n - 1) for v, n in (*own.items(), *inner.items())
    }
    steps = row_major(buffer.shape)
    flat = [combine([(affine(i), s) for i, s in zip(a.indices, steps)]).expr() for a in found]
    separated |= _separated([affine(simplify(e, ranges)) for e in flat], own, inner)
    return separated >= wanted


def _separated(
    forms: Sequence[Affine], own: Mapping[Var, int], inner: Mapping[Var, int]
) -> set[Var]:
    """The variables whose every step moves all forms past whatever the rest can reach.

    i * 8 + j with j in 8: steps of i are 8 apart and j reaches 7, so both are separated.
    """
    steps = {v: forms[0].coefficient(v) for v in own}
    if any(f.coefficient(v) != c for f in forms for v, c in steps.items()):
        return set()
    fixed = {t for t in forms[0].terms if _is_outer(t[0], own, inner)}
    low: list[int] = []
    high: list[int] = []
    for form in forms:
        if {t for t in form.terms if _is_outer(t[0], own, inner)} != fixed:
            return set()
        rest = [t for t in form.terms if t not in fixed and t[0] not in own]
        extents: dict[Expr, int] = dict(inner.items())
        reach = interval(Affine(tuple(rest), form.constant).expr(), extents)
        if reach is None:
            return set()
        low.append(reach[0])
        high.append(reach[1])
    width = max(high) - min(low)
    moving = sorted((v for v in own if steps[v]), key=lambda v: abs(steps[v]))
    for v in moving:
        if abs(steps[v]) <= width:
            return set()
        width += abs(steps[v]) * (own[v] - 1)
    return set(moving)


def _is_outer(atom: Expr, own: Mapping[Var, int], inner: Mapping[Var, int]) -> bool:
    """True for what is the same in all iterations."""
    symbols = free_symbols(atom)
    reads = any(isinstance(e, Read) for e in subexpressions(atom))
    return not reads and not any(s in own or s in inner for s in symbols)


def is_repeatable(block: Sequence[Stmt]) -> bool:
    """True when running the block twice leaves the same values as running it once.

    What it writes and also reads, it writes first, at the very same place.
    """
    for found in written_outside(block).values():
        reads = [a for a in found if not a.is_write]
        first = found[0]
        if reads and not (
            first.is_write
            and not first.conditional
            and all(a.indices == first.indices for a in found)
        ):
            return False
    return True


# ---------------------------------------------------------------------------------- reductions
@dataclass(frozen=True, eq=False)
class Update:
    """buffer[indices] = combine(buffer[indices], value)"""

    store: Store
    kind: str
    value: Expr


def as_update(store: Store) -> Update | None:
    """The store as one step of a reduction, or None."""
    here = Read(store.buffer, store.indices)
    match store.value:
        case Binary(op="add" | "mul" | "or" | "and" as op, left=left, right=right):
            kind = {"add": "sum", "mul": "prod", "or": "any", "and": "all"}[op]
            operands = (left, right)
        case Call(name="max" | "min" as kind, args=(left, right)):
            operands = (left, right)
        case _:
            return None
    for one, value in (operands, operands[::-1]):
        if one is here:
            own = any(
                isinstance(x, Read) and x.tensor is store.buffer for x in subexpressions(value)
            )
            return None if own else Update(store, kind, value)
    return None


def is_commutative(block: Sequence[Stmt]) -> bool:
    """True when everything that outlives the block is only combined into, so order is free."""
    for found in written_outside(block).values():
        stores = [a.store for a in found if a.store is not None]
        updates = [as_update(s) for s in stores]
        kinds = {u.kind if u is not None else None for u in updates}
        reads = sum(not a.is_write for a in found)
        if None in kinds or len(kinds) > 1 or reads > len(stores):
            return False
    return True


# ------------------------------------------------------------------------------------- regions
@dataclass(frozen=True)
class Region:
    """A box of elements: where it starts, in terms of outer variables, and its extents."""

    start: tuple[Expr, ...]
    shape: tuple[int, ...]


def region_of(places: Sequence[tuple[Expr, ...]], body: Sequence[Stmt]) -> Region | None:
    """The box that contains all places while the loops in the block run; None if it varies."""
    inner = _inner_extents(body)
    if inner is None:
        return None
    start: list[Expr] = []
    shape: list[int] = []
    extents: dict[Expr, int] = dict(inner.items())
    for dim in range(len(places[0])):
        forms = [affine(p[dim]) for p in places]
        fixed = {t for t in forms[0].terms if _is_outer(t[0], {}, inner)}
        low: list[int] = []
        high: list[int] = []
        for form in forms:
            if {t for t in form.terms if _is_outer(t[0], {}, inner)} != fixed:
                return None
            rest = tuple(t for t in form.terms if t not in fixed)
            reach = interval(Affine(rest, form.constant).expr(), extents)
            if reach is None:
                return None
            low.append(reach[0])
            high.append(reach[1])
        outer = tuple(t for t in forms[0].terms if t in fixed)
        start.append(Affine(outer, min(low)).expr())
        shape.append(max(high) - min(low) + 1)
    return Region(tuple(start), tuple(shape))
