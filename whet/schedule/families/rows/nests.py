"""The loop nests of row schedules, for a whole population at once.

What happens to a row depends on the lanes, the vectors in flight and the rows that go together
alone, of which there are few combinations: each is lowered once, for one group of rows per step,
and its statements are taken from there.  How far the loops around the groups move follows for all
rows per step at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import free_symbols
from whet.ir.program import Loop, Stmt, Store
from whet.schedule.families.rows.lower import lower_rows
from whet.schedule.families.rows.match import Rows, RowTiling
from whet.schedule.space.levels import Level, describe, position
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import Statement


def row_nests(r: Rows, target: CpuTarget, threads: int, holes: Population) -> tuple[Statement, ...]:
    """The statements of all candidates."""
    sizes = np.stack([holes["lanes"], holes["vectors"], holes["together"]], axis=1)
    found: list[Statement] = []
    for lanes, vectors, together in np.unique(sizes, axis=0):
        chosen = np.flatnonzero((sizes == (lanes, vectors, together)).all(axis=1))
        groups = holes["rows_per_step"][chosen] // together
        for store, loops in _row_stores(r, int(lanes), int(vectors), int(together)):
            levels = _levels(store, loops, math.prod(r.row_shape) // int(together), groups)
            found.append(describe(store.buffer.name, store, levels, chosen))
    return tuple(found)


@lru_cache(maxsize=256)
def _row_stores(
    r: Rows, lanes: int, vectors: int, together: int
) -> tuple[tuple[Store, tuple[Loop, ...]], ...]:
    program = lower_rows(r, RowTiling(lanes, vectors, together, together), "rows").program
    return tuple(_stores(program.body, ()))


def _stores(
    body: Sequence[Stmt], around: tuple[Loop, ...]
) -> Iterator[tuple[Store, tuple[Loop, ...]]]:
    for stmt in body:
        if isinstance(stmt, Store):
            yield stmt, around
        inside = (*around, stmt) if isinstance(stmt, Loop) else around
        for inner in stmt.blocks:
            yield from _stores(inner, inside)


def _levels(store: Store, loops: Sequence[Loop], count: int, per_step: Array) -> list[Level]:
    """The loops of a statement; with one group per step, the outermost variable is the group."""
    group, _, *inner = loops
    written = {s for index in store.indices for s in free_symbols(index)}
    far = np.where(count % per_step == 0, per_step, np.minimum(per_step, count - per_step))
    return [
        Level("p", -(-count // per_step), "parallel", {group.var: far}),
        Level("io", per_step, "serial", {group.var: 1}),
        *(
            Level(x.var.name, position(x.extent, {}), x.kind, {x.var: 1}, x.var not in written)
            for x in inner
        ),
    ]
