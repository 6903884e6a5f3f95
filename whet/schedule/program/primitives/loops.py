"""Primitives on loops: split, fuse, reorder, fission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from whet.core.dtypes import i64
from whet.core.errors import ScheduleError, check
from whet.ir.expr import Expr, call, const
from whet.ir.program import If, Loop, Program, Stmt, substitute_block
from whet.schedule.program.loops import loop as nest_loop
from whet.schedule.program.primitives.dependence import (
    are_independent,
    is_commutative,
    is_repeatable,
)
from whet.schedule.program.primitives.names import Names, renamed_copy
from whet.schedule.program.primitives.replacing import replace
from whet.schedule.program.primitives.tree import find_loop, perfect_nest, static_extent

Tail = Literal["perfect", "guard", "peel", "overlap"]


def split(program: Program, loop: str, factor: int, tail: Tail = "guard") -> Program:
    """Two nested loops, the inner one of `factor` steps (Exo: divide_loop).

    rewrite (i in 10, factor 4):
        for i in 10: S(i)

        guard     for io in 3: for ii in 4: if io * 4 + ii < 10: S(io * 4 + ii)
        peel      for io in 2: for ii in 4: S(io * 4 + ii)
                  for it in 2: S(it + 8)
        overlap   for io in 3: for ii in 4: S(min(io * 4, 6) + ii)

    When the factor divides the extent, all tails give the same plain loops.

    Requires: 1 <= factor, and factor <= extent for peel and overlap; `perfect` needs a factor
    that divides; `overlap` repeats steps, so they must be independent and repeatable.
    Raises: WH2101 (no such loop), WH2102 (factor), WH2104 (steps that cannot be repeated).
    """
    old = find_loop(program, loop)
    extent = static_extent(old)
    _check_factor(old, extent, factor, tail)
    names = Names(program)
    outer, inner = names.var(f"{loop}o"), names.var(f"{loop}i")
    full, rest = divmod(extent, factor)

    def nest(count: int, begin: Expr, guarded: bool = False) -> Stmt:
        body = substitute_block(old.body, {old.var: begin + inner})
        if guarded:
            body = (If(begin + inner < extent, body),)
        return nest_loop(outer, count, nest_loop(inner, factor, *body), kind=old.kind)

    if not rest:
        return replace(program, old, (nest(full, outer * factor),))
    if tail == "guard":
        return replace(program, old, (nest(full + 1, outer * factor, guarded=True),))
    if tail == "overlap":
        twice = old.kind == "serial" and are_independent([old]) and is_repeatable(old.body)
        check(twice, "WH2104",
              f"steps of loop '{loop}' cannot be done twice",
              hint="use tail='guard' or tail='peel'", kind=ScheduleError)  # fmt: skip
        begin = call("min", outer * factor, extent - factor)
        return replace(program, old, (nest(full + 1, begin),))
    last = names.var(f"{loop}t")
    copy = renamed_copy(old.body, names)
    tail_body = substitute_block(copy, {old.var: last + full * factor})
    peeled = Loop(last, const(rest, i64), tail_body, old.kind)
    return replace(program, old, (nest(full, outer * factor), peeled))


def _check_factor(old: Loop, extent: int, factor: int, tail: Tail) -> None:
    name = old.var.name
    check(old.kind in ("serial", "parallel"), "WH2102", f"loop '{name}' is {old.kind} already",
          kind=ScheduleError)  # fmt: skip
    check(factor >= 1, "WH2102", f"loop '{name}' cannot be split by {factor}", kind=ScheduleError)
    if tail == "perfect":
        check(extent % factor == 0, "WH2102", f"{factor} does not divide the extent {extent} of "
              f"loop '{name}'", hint=f"use another tail or one of {divisors(extent)}",
              kind=ScheduleError)  # fmt: skip
    elif tail != "guard":
        check(factor <= extent, "WH2102", f"loop '{name}' of extent {extent} has no whole step "
              f"of {factor}", hint="use tail='guard'", kind=ScheduleError)  # fmt: skip


def divisors(extent: int) -> list[int]:
    return [n for n in range(1, extent + 1) if extent % n == 0]


def fuse(program: Program, outer: str, inner: str) -> Program:
    """One loop over two perfectly nested ones.

    rewrite:
        for i in 4: for j in 3: S(i, j)   ->   for ij in 12: S(ij // 3, ij % 3)

    Requires: the inner loop is all that the outer one does, both are serial.
    Raises: WH2101, WH2102 (extent not known, or not serial), WH2103 (not nested like that).
    """
    first, second = perfect_nest(program, (outer, inner))
    check(first.var.name == outer, "WH2103", f"loop '{outer}' lies inside loop '{inner}'",
          kind=ScheduleError)  # fmt: skip
    check(first.kind == second.kind == "serial", "WH2102", "only serial loops can be fused",
          kind=ScheduleError)  # fmt: skip
    extents = static_extent(first), static_extent(second)
    both = Names(program).var(f"{outer}{inner}")
    body = substitute_block(
        second.body, {first.var: both // extents[1], second.var: both % extents[1]}
    )
    return replace(program, first, (nest_loop(both, extents[0] * extents[1], *body),))


def reorder(program: Program, order: Sequence[str]) -> Program:
    """The same perfectly nested loops in another order, outermost first.

    rewrite (order j, i):
        for i in 4: for j in 3: S(i, j)   ->   for j in 3: for i in 4: S(i, j)

    Requires: each loop is all that the one around it does; the extents do not depend on each
    other; iterations are independent, or only combine into what they write (a reduction).
    Raises: WH2101, WH2102 (extent not known; parallel or vector), WH2103, WH2104 (iterations
    depend on each other).
    """
    check(len(set(order)) == len(order) >= 2, "WH2103",
          f"an order needs two or more different loops, not {list(order)}",
          kind=ScheduleError)  # fmt: skip
    loops = perfect_nest(program, order)
    for one in loops:
        static_extent(one)
        check(one.kind in ("serial", "unroll"), "WH2102", f"loop '{one.var}' is {one.kind} already",
              hint="reorder first", kind=ScheduleError)  # fmt: skip
    body = loops[-1].body
    check(are_independent(loops) or is_commutative(body), "WH2104",
          f"iterations of the loops {', '.join(str(x.var) for x in loops)} depend on each other",
          kind=ScheduleError)  # fmt: skip
    by_name = {one.var.name: one for one in loops}
    nest = body
    for name in reversed(order):
        one = by_name[name]
        nest = (Loop(one.var, one.extent, nest, one.kind),)
    return replace(program, loops[0], nest)


def fission(program: Program, loop: str, at: int = 1) -> Program:
    """Two loops, the first over the statements before position `at`, the second over the rest.

    rewrite (at 1):
        for i in 4:                     for i in 4: y[i] = 0.0
          y[i] = 0.0              ->    for i_1 in 4:
          for k in 6: S(i, k)             for k in 6: S(i_1, k)

    Requires: 0 < at < number of statements; iterations are independent; no scratch buffer is
    shared by the two parts (it would be a statement around them).
    Raises: WH2101, WH2102 (position), WH2104.
    """
    old = find_loop(program, loop)
    check(0 < at < len(old.body), "WH2102", f"loop '{loop}' has {len(old.body)} statements and "
          f"cannot be split at {at}", kind=ScheduleError)  # fmt: skip
    check(are_independent([old]), "WH2104", f"iterations of loop '{loop}' depend on each other",
          kind=ScheduleError)  # fmt: skip
    second = Names(program).var(loop)
    rest = substitute_block(old.body[at:], {old.var: second})
    return replace(
        program,
        old,
        (Loop(old.var, old.extent, old.body[:at], old.kind),
         Loop(second, old.extent, rest, old.kind)),
    )  # fmt: skip
