"""The sweeping sketch: reductions over outer axes, read in the order in which they lie.

    y[i] = epilogue(sum(a[k, i] * x[k] for k in 4096))

    parallel p over (outer axes, chunks of columns):
      row[...] = identity
      for blocks of 8 terms: for panels of the chunk:
        acc[nv, lanes] = row[panel]
        for k in block: acc = combine(acc, value)           (unrolled)
        row[panel] = acc
      y[chunk] = epilogue(row)

A tile that takes all terms at once steps over the row of every term to its few columns, often to
another page, which no machine foresees.  Here a few rows at a time are read from end to end, and
what has been summed up of every column is kept in the first cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.affine import affine, free_symbols
from whet.ir.expr import Axis, Expr, Read, Reduce, as_expr, elements
from whet.ir.tensor import subexpressions
from whet.schedule.cost.work import (
    lane_step,
)
from whet.schedule.families.spatial.match import find_spatial
from whet.schedule.program.flat import FlatStage, merge_axes
from whet.tasks.task import Task

FEWEST_TERMS = 16
"""Shorter reductions are written out, or nearly so, by the spatial sketch."""


@dataclass(frozen=True, eq=False)
class Sweeps:
    """A stage of one reduction whose terms are rows."""

    task: Task
    stage: FlatStage
    reduce: Reduce
    vector: Axis
    outer: tuple[Axis, ...]
    terms: tuple[Axis, ...]
    """What is reduced, merged where memory allows, furthest apart first."""
    value: Expr
    """What is reduced, over the merged axes."""


@dataclass(frozen=True)
class SweepTiling:
    """The holes: vectors of a panel, lanes, terms of a block, and panels of a chunk."""

    nv: int
    lanes: int
    block: int
    panels_per_chunk: int


def find_sweeps(task: Task) -> Sweeps | None:
    """The task as rows that are reduced, or None."""
    found = find_spatial(task)
    if found is None or found.vector is None or len(found.stage.reduces) != 1:
        return None
    stage, vector = found.stage, found.vector
    (reduce,) = stage.reduces
    if reduce.kind.startswith("arg") or elements(reduce.axes) < FEWEST_TERMS:
        return None
    flat = [e for e in subexpressions(reduce.value) if isinstance(e, Read)]
    rows = [e for e in flat if vector in free_symbols(e)]
    if any(len(e.indices) != 1 for e in flat) or not rows:
        return None
    if any(lane_step(e, vector) != 1 for e in rows):
        return None
    forms = [affine(e.indices[0]) for e in rows]
    apart = {k: min(abs(f.coefficient(k)) for f in forms) for k in reduce.axes}
    if not all(apart.values()):
        return None  # some row serves several terms: a tile reads it once for all of them
    order = sorted(reduce.axes, key=lambda k: -apart[k])
    terms, (_, value) = merge_axes(order, (as_expr(0), reduce.value))
    outer = tuple(a for a in stage.axes if a is not vector)
    return Sweeps(task, stage, reduce, vector, outer, terms, value)
