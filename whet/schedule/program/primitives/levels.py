"""Primitives on whole nests: multi-level tiling, the start value apart, outer loops on threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from itertools import pairwise

from whet.core.errors import ScheduleError, check
from whet.ir.expr import Expr, call
from whet.ir.program import Allocate, Block, Loop, Program, Store, substitute_block
from whet.schedule.program.loops import loop as nest_loop
from whet.schedule.program.primitives.dependence import (
    are_independent,
    is_commutative,
    is_repeatable,
)
from whet.schedule.program.primitives.names import Names
from whet.schedule.program.primitives.overlap import writes_agree
from whet.schedule.program.primitives.replacing import replace
from whet.schedule.program.primitives.tree import find_loop, path_to, perfect_nest, static_extent


def tile(
    program: Program, loops: Sequence[str], sizes: Sequence[Sequence[int]], order: Sequence[str]
) -> Program:
    """Nested loops split into levels and put in order, all at once (Ansor, rule 3).

    rewrite (loops i, j; sizes (4, 2), (8); order i.0, j.0, i.1, j.1, i.2):
        for i in 8: for j in 16: S(i, j)
            ->
        for i.0 in 2: for j.0 in 2: for i.1 in 2: for j.1 in 8: for i.2 in 2:
          S(i.0 * 4 + i.1 * 2 + i.2, j.0 * 8 + j.1)

    The sizes of a loop are those of its tiles, largest first; each divides the one before.  Where
    the largest does not divide the extent, the last tile is moved back to end at the edge.

    Requires: perfectly nested serial loops; an order of all parts; iterations that are
    independent or only combine into what they write; that can be repeated where tiles overlap.
    Raises: WH2101, WH2102 (sizes, order), WH2103 (nesting), WH2104.
    """
    check(len(loops) == len(sizes) > 0, "WH2102", f"{len(loops)} loops have {len(sizes)} lists of "
          "sizes", kind=ScheduleError)  # fmt: skip
    nest = perfect_nest(program, loops)
    extents = {one.var.name: static_extent(one) for one in nest}
    for one in nest:
        check(one.kind == "serial", "WH2102", f"loop '{one.var}' is {one.kind} already",
              kind=ScheduleError)  # fmt: skip
    ragged = False
    for name, chain in zip(loops, sizes):
        extent = extents[name]
        steps = all(small >= 1 and large % small == 0 for large, small in pairwise(chain))
        check(steps and (not chain or 1 <= chain[0] <= extent), "WH2102",
              f"loop '{name}' of extent {extent} has no tiles of {list(chain)}",
              hint="each size must divide the one before", kind=ScheduleError)  # fmt: skip
        ragged = ragged or (bool(chain) and extent % chain[0] != 0)
    body = nest[-1].body
    independent = are_independent(nest)
    check(independent or is_commutative(body), "WH2104",
          f"iterations of the loops {', '.join(loops)} depend on each other",
          kind=ScheduleError)  # fmt: skip
    check(not ragged or (independent and is_repeatable(body)), "WH2104",
          f"steps of the loops {', '.join(loops)} cannot be done twice",
          hint="use sizes that divide the extents", kind=ScheduleError)  # fmt: skip
    names = Names(program)
    parts: dict[str, Loop] = {}
    values: dict[Expr, Expr] = {}
    for name, chain in zip(loops, sizes):
        made, value = _levels(name, extents[name], chain, names)
        parts |= made
        values[find_loop(program, name).var] = value
    check(sorted(order) == sorted(parts), "WH2102",
          f"{list(order)} is no order of {', '.join(parts)}", kind=ScheduleError)  # fmt: skip
    block: Block = substitute_block(body, values)
    for name in reversed(order):
        block = (with_fields(parts[name], body=block),)
    return replace(program, nest[0], block)


def _levels(
    name: str, extent: int, chain: Sequence[int], names: Names
) -> tuple[dict[str, Loop], Expr]:
    """The parts of one loop by the names that an order calls them, and their common value."""
    counts = [-(-extent // chain[0]) if chain else extent]
    counts += [large // small for large, small in pairwise([*chain, 1])] if chain else []
    variables = [names.var(f"{name}.{n}") for n in range(len(counts))]
    parts = {f"{name}.{n}": nest_loop(v, counts[n]) for n, v in enumerate(variables)}
    steps = [*chain, 1]
    value: Expr = variables[0] * steps[0]
    if chain and extent % chain[0]:
        value = call("min", value, extent - chain[0])
    for var, step in zip(variables[1:], steps[1:]):
        value = value + var * step
    return parts, value


def decompose(program: Program, loops: Sequence[str]) -> Program:
    """The start value of a reduction in a nest of its own.

    rewrite (i, j):
        for i in 4: for j in 8:                   for i in 4: for j in 8: y[i, j] = 0.0
          y[i, j] = 0.0                     ->    for i_1 in 4: for j_1 in 8:
          for k in 6: S(i, j, k)                    for k in 6: S(i_1, j_1, k)

    Requires: perfectly nested loops around one store and other statements; independent
    iterations.
    Raises: WH2101, WH2103 (nesting), WH2104, WH2106 (no start value).
    """
    nest = perfect_nest(program, loops)
    body = nest[-1].body
    check(len(body) > 1 and isinstance(body[0], Store), "WH2106",
          f"loop '{nest[-1].var}' does not begin with a start value",
          kind=ScheduleError)  # fmt: skip
    check(are_independent(nest), "WH2104",
          f"iterations of the loops {', '.join(loops)} depend on each other",
          kind=ScheduleError)  # fmt: skip
    names = Names(program)
    fresh = {one.var: names.var(one.var.name) for one in nest}
    first: Block = body[:1]
    rest: Block = substitute_block(body[1:], dict(fresh.items()))
    for one in reversed(nest):
        first = (Loop(one.var, one.extent, first, one.kind),)
        rest = (Loop(fresh[one.var], one.extent, rest, one.kind),)
    return replace(program, nest[0], (*first, *rest))


def spread(program: Program, loops: Sequence[str]) -> Program:
    """Nested outer loops as one loop whose iterations are shared out to the threads.

    rewrite (i, j):
        for i in 4: for j in 3: S(i, j)   ->   parallel ij in 12: S(ij // 3, ij % 3)

    Tiles that overlap may be computed by two threads, if they only store and store the same.

    Requires: perfectly nested outermost loops of known extents; iterations that write disjoint
    elements and read nothing that another one writes, or that all write the same values.
    Raises: WH2101, WH2102, WH2103 (not outermost or not nested), WH2104.
    """
    nest = perfect_nest(program, loops)
    around = path_to(program.body, nest[0])
    check(not any(isinstance(s, (Loop, Allocate)) for s in around), "WH2103",
          f"loop '{nest[0].var}' is not outermost", kind=ScheduleError)  # fmt: skip
    check(are_independent(nest) or writes_agree(nest), "WH2104",
          f"iterations of the loops {', '.join(loops)} depend on each other",
          hint="they must write disjoint elements, or the same values",
          kind=ScheduleError)  # fmt: skip
    for one in nest:
        check(one.kind == "serial", "WH2102", f"loop '{one.var}' is {one.kind} already",
              kind=ScheduleError)  # fmt: skip
    extents = [static_extent(one) for one in nest]
    fused = nest[0].var if len(nest) == 1 else Names(program).var("@".join(loops))
    values: dict[Expr, Expr] = {}
    below = 1
    for n in reversed(range(len(nest))):
        part = fused // below
        values[nest[n].var] = part if n == 0 else part % extents[n]
        below *= extents[n]
    body = substitute_block(nest[-1].body, values)
    return replace(program, nest[0], (nest_loop(fused, below, *body, kind="parallel"),))
