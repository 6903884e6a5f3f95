"""Taps that a whole register tile reads outside its image, where there is nothing but zeros.

    y[h, w, o] = sum(select(0 <= h + 18 * p - 18 and h + 18 * p - 18 < 33 and ...,
                            x[h + 18 * p - 18, ...], 0) * weight[o, p, ...] for p in 3, ...)

A tile of rows 0 to 10 has nothing to add for p = 0, and one of rows 15 to 25 needs only p = 1.
Where a step of the loop over taps would add zeros to all rows of a tile, it is left out: the more
there are, the smaller the image is against its window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.types import Array
from whet.ir.affine import Affine, affine
from whet.ir.expr import (
    Axis,
    Binary,
    Expr,
    Read,
    Reduce,
    Select,
    Var,
    as_expr,
    elements,
    equal,
    select,
)
from whet.ir.tensor import Compute, stages, subexpressions
from whet.schedule.cost.numbers.overheads import WORTH_SKIPPING
from whet.schedule.space.levels import ceil_div, position, start_at
from whet.tasks.guards import is_guard, zero_annihilates


@dataclass(frozen=True, eq=False)
class Edge:
    """Rows and taps that together are a position in an image, `extent` long."""

    rows: Axis
    taps: Axis
    position: Affine
    extent: int

    def needs(self, low: Expr, high: Expr, tap: Expr) -> Expr:
        """Whether some of the rows from `low` to `high` read the image at a tap."""
        form = self.position
        step, fixed = form.coefficient(self.rows), form.constant
        moved = tap * form.coefficient(self.taps) + fixed
        return (as_expr(0) <= high * step + moved) & (low * step + moved < self.extent)

    @property
    def inside(self) -> float:
        """Which part of all pairs of a row and a tap lies in the image."""
        row, tap = np.ogrid[: self.rows.extent, : self.taps.extent]
        form = self.position
        at = row * form.coefficient(self.rows) + tap * form.coefficient(self.taps) + form.constant
        return float(np.mean((at >= 0) & (at < self.extent)))


def find_edges(
    outputs: Sequence[Compute], rows: Sequence[Axis], taps: Sequence[Axis]
) -> tuple[Edge, ...]:
    """The edges of images that a sum of products reads under guards."""
    found: list[Edge] = []
    bodies = [s.body for s in stages(outputs) if isinstance(s, Compute)]
    for reduce in (e for e in subexpressions(*bodies) if isinstance(e, Reduce)):
        value = reduce.value
        if not (isinstance(value, Binary) and value.op == "mul" and zero_annihilates(value)):
            continue
        for factor in (value.left, value.right):
            if isinstance(factor, Select) and is_guard(factor) and isinstance(factor.then, Read):
                found += _edges(factor.then, rows, taps)
    return tuple(found)


def _edges(read: Read, rows: Sequence[Axis], taps: Sequence[Axis]) -> list[Edge]:
    found = []
    for index, extent in zip(read.indices, read.tensor.shape):
        form = affine(index)
        longer = [(a, c) for a, c in form.terms if not (isinstance(a, Axis) and a.extent == 1)]
        row = [a for a, c in longer if a in rows and c > 0]
        tap = [a for a, _ in longer if a in taps]
        if len(longer) == 2 and len(row) == len(tap) == 1:
            assert isinstance(row[0], Axis)
            assert isinstance(tap[0], Axis)
            found.append(Edge(row[0], tap[0], form, extent))
    return found


def span(axis: Axis, axes: Sequence[Axis], first: Expr, last: Expr) -> tuple[Expr, Expr]:
    """The least and the largest position on one of several axes of a run through their product."""
    place = axes.index(axis)
    below = elements(axes[place + 1 :])
    low, high = first // below, last // below
    if place == 0:
        return low, high
    together = equal(low // axis.extent, high // axis.extent)
    return (
        select(together, low % axis.extent, 0),
        select(together, high % axis.extent, axis.extent - 1),
    )


def conditions(
    edges: Sequence[Edge], axes: Sequence[Axis], first: Expr, count: int
) -> dict[Axis, Expr]:
    """When a tile of rows, numbered along all axes, needs a step of a loop over taps."""
    return {
        edge.taps: edge.needs(*span(edge.rows, axes, first, first + (count - 1)), edge.taps)
        for edge in edges
    }


def least_needed(edges: Sequence[Edge]) -> float:
    """Which part of all steps tiles of single rows need; larger ones need more."""
    return math.prod(edge.inside for edge in edges)


def part_needed(edges: Sequence[Edge], axes: Sequence[Axis], count: int) -> float:
    """Which part of all steps tiles of so many rows need."""
    rows, first = elements(axes), Var("first")
    starts = start_at(np.arange(int(ceil_div(rows, count))), count, rows)
    part = np.ones(len(starts))
    for taps, needed in conditions(edges, axes, first, count).items():
        each = [position(needed, {first: starts, taps: n}) for n in range(taps.extent)]
        part *= np.mean(each, axis=0)
    return float(np.mean(part))


def parts_needed(edges: Sequence[Edge], axes: Sequence[Axis], mr: Array, skip: Array) -> Array:
    """The same for tiles of mr rows, of a population in which some leave nothing out."""
    part = np.ones(len(mr))
    for count in np.unique(mr[skip > 0]):
        part[(skip > 0) & (mr == count)] = part_needed(edges, axes, int(count))
    return part


def worth_skipping(edges: Sequence[Edge], axes: Sequence[Axis], most: int) -> dict[int, int]:
    """Whether to leave out what is not needed, by the number of rows of a tile."""
    counts = range(1, most + 1)
    if least_needed(edges) > WORTH_SKIPPING:
        return dict.fromkeys(counts, 0)
    return {count: int(part_needed(edges, axes, count) <= WORTH_SKIPPING) for count in counts}
