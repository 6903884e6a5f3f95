"""Primitives that say how a loop runs: unroll, vectorize, parallel."""

from __future__ import annotations

from whet.core.errors import ScheduleError, check
from whet.ir.program import Allocate, Loop, Program, Store
from whet.schedule.program.primitives.dependence import are_independent
from whet.schedule.program.primitives.replacing import mark
from whet.schedule.program.primitives.tree import find_loop, path_to, static_extent


def unroll(program: Program, loop: str) -> Program:
    """The loop written out by code generation.

    rewrite:
        for i in 4: S(i)   ->   unroll i in 4: S(i)

    Requires: a known extent. Raises: WH2101, WH2102 (extent not known, or not serial).
    """
    old = _serial(program, loop)
    return mark(program, old, "unroll")


def vectorize(program: Program, loop: str) -> Program:
    """The iterations as lanes of vectors of exactly that many elements.

    rewrite:
        for i in 8: S(i)   ->   vector i in 8: S(i)

    Requires: a known extent; only stores inside; independent iterations.
    Raises: WH2101, WH2102 (extent), WH2103 (other statements inside), WH2104.
    """
    old = _serial(program, loop)
    check(all(isinstance(s, Store) for s in old.body), "WH2103",
          f"loop '{loop}' does more than store, so it cannot be lanes of a vector",
          hint="move it innermost and split off conditions first", kind=ScheduleError)  # fmt: skip
    check(are_independent([old]), "WH2104", f"iterations of loop '{loop}' depend on each other",
          hint="a reduction needs rfactor first", kind=ScheduleError)  # fmt: skip
    return mark(program, old, "vector")


def parallel(program: Program, loop: str) -> Program:
    """The iterations shared out to the threads.

    rewrite:
        for i in 64: S(i)   ->   parallel i in 64: S(i)

    Requires: a known extent; no loop and no scratch buffer around it; iterations that write
    disjoint elements and read nothing that another one writes.
    Raises: WH2101, WH2102, WH2103 (not outermost), WH2104.
    """
    old = _serial(program, loop)
    around = path_to(program.body, old)
    check(not any(isinstance(s, (Loop, Allocate)) for s in around), "WH2103",
          f"loop '{loop}' is not outermost", kind=ScheduleError)  # fmt: skip
    check(are_independent([old]), "WH2104", f"iterations of loop '{loop}' depend on each other",
          hint="they must write disjoint elements", kind=ScheduleError)  # fmt: skip
    return mark(program, old, "parallel")


def _serial(program: Program, loop: str) -> Loop:
    old = find_loop(program, loop)
    static_extent(old)
    check(old.kind == "serial", "WH2102", f"loop '{loop}' is {old.kind} already",
          kind=ScheduleError)  # fmt: skip
    return old
