"""Prices of reductions in parts, for a whole population at once."""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.schedule.algorithms.parts import numbers_of_parts
from whet.schedule.cost.numbers.threads import MEETING
from whet.schedule.families.parts.match import Cut, Parted
from whet.schedule.families.spatial.price import spatial_costs
from whet.schedule.space.sketch import Population


def part_holes(form: Parted, target: CpuTarget, threads: int) -> Population:
    """The candidates of the inner sketch for every number of parts."""
    tables: list[Population] = []
    for parts in numbers_of_parts(form.task, form.order):
        cut = form.cut(parts)
        if cut.form is None:
            continue
        found = form.inner.space(cut.form, target, threads)
        count = len(next(iter(found.values())))
        several = threads > 1 and cut.halves.whole.outputs[0].type.size > 1
        for shared in (0, 1) if several else (0,):
            own = {"parts": np.full(count, parts), "shared": np.full(count, shared)}
            tables.append({**own, **found})
    if not tables:
        return {"parts": np.zeros(0, np.int64)}
    names = dict.fromkeys(name for table in tables for name in table)
    zeros = [np.zeros(len(table["parts"]), np.int64) for table in tables]
    return {
        name: np.concatenate([table.get(name, zero) for table, zero in zip(tables, zeros)])
        for name in names
    }


def part_costs(form: Parted, target: CpuTarget, threads: int, population: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    costs: Array = np.full(len(population["parts"]), np.inf)
    for parts, shared, rows in by_cut(population):
        cut = form.cut(parts)
        first = form.inner.costs(cut.form, target, threads, inside(population, rows))
        second = spatial_costs(cut.finish, target, threads, finishing(cut, shared))
        costs[rows] = MEETING * (first + second[0])
    return costs


def by_cut(population: Population) -> list[tuple[int, int, Array]]:
    """The rows of each number of parts and way to add them up."""
    kinds = np.stack([population["parts"], population["shared"]], axis=1)
    return [
        (int(parts), int(shared), np.flatnonzero((kinds == (parts, shared)).all(axis=1)))
        for parts, shared in np.unique(kinds, axis=0)
    ]


def inside(population: Population, rows: Array) -> Population:
    """The rows of a population, as the inner sketch has them."""
    return {n: c[rows] for n, c in population.items() if n not in ("parts", "shared")}


def finishing(cut: Cut, shared: int) -> Population:
    """The holes of the loop that adds up the parts."""
    t = cut.tiling(shared)
    names = ("px", "nv", "lanes", "tiles_per_step", "panels_per_step")
    return {name: np.array([getattr(t, name)]) for name in names}
