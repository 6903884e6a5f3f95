"""The register tile, made of the other primitives."""

from __future__ import annotations

from whet.core.errors import ScheduleError, check
from whet.ir.program import Loop, Program
from whet.schedule.program.primitives.accesses import stores_in
from whet.schedule.program.primitives.caches import cache_write
from whet.schedule.program.primitives.loops import Tail, fission, reorder, split
from whet.schedule.program.primitives.marks import unroll, vectorize
from whet.schedule.program.primitives.tree import find_loop, perfect_nest, static_extent


def register_tile(
    program: Program, rows: str, columns: str, mr: int, nv: int, lanes: int, tail: Tail = "overlap"
) -> Program:
    """A tile of mr rows by nv vectors of a reduction, held in registers.

    rewrite (i, j):
        for i in 8: for j in 16:
          y[i, j] = 0.0
          for k in 6: y[i, j] = y[i, j] + f(i, j, k)
            ->
        for io in 4: for jo in 1:                               (mr 2, nv 2, lanes 8)
          y_local = allocate f32[2, 16] in registers
          unroll ii in 2: unroll jio in 2: vector jii in 8: y_local[...] = 0.0
          for k in 6:
            unroll ii_1 in 2: unroll jio_1 in 2: vector jii_1 in 8: y_local[...] = ...
          unroll ...: y[...] = y_local[...]

    Requires: two perfectly nested loops around a start value and loops that combine; a tail that
    can be done twice for `overlap`; sizes that the extents have room for unless they divide.
    Raises: what split, reorder, fission, vectorize and cache_write raise; WH2106 (no reduction).
    """
    perfect_nest(program, (rows, columns))
    body = find_loop(program, columns).body
    check(len(body) == 2 and isinstance(body[1], Loop), "WH2106",
          f"loop '{columns}' is not a start value and a reduction", kind=ScheduleError)  # fmt: skip
    buffer = stores_in(body)[0].buffer.name
    inner = f"{rows}i"
    program = split(program, rows, mr, tail)
    program = reorder(program, (columns, inner))
    program = split(program, columns, nv * lanes, tail)
    program = split(program, f"{columns}i", lanes, "perfect")
    wide, narrow = f"{columns}io", f"{columns}ii"
    program = reorder(program, (inner, wide, narrow))
    second = {}
    for name in (narrow, wide, inner):
        program = fission(program, name)
        second[name] = f"{name}_1"
    tile = [second[inner], second[wide], second[narrow]]
    reduced = _reduced_loops(program, second[narrow])
    program = reorder(program, (*reduced, *tile))
    for name in (inner, wide, second[inner], second[wide]):
        program = unroll(program, name)
    for name in (narrow, second[narrow]):
        program = vectorize(program, name)
    return cache_write(program, buffer, f"{columns}o", "register")


def _reduced_loops(program: Program, name: str) -> list[str]:
    """The perfectly nested loops inside a loop, outermost first."""
    found: list[str] = []
    body = find_loop(program, name).body
    while len(body) == 1 and isinstance(body[0], Loop):
        static_extent(body[0])
        found.append(body[0].var.name)
        body = body[0].body
    check(bool(found), "WH2106", f"loop '{name}' holds no reduction", kind=ScheduleError)
    return found
