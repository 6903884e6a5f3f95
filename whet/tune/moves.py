"""Moves in a space as array programs: mutation, crossover and roulette on whole populations.

A population is a matrix of legal rows of one table.  Moves are made in the ranks of values, so
that a step means the next value that there is.  Where a closed table forbids a child, the nearest
legal row that keeps the moved hole takes its place; illegal children of open tables are drawn
anew, and where that does not help the parent stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from whet.core.types import Array
from whet.tune.space import Table

KINDS: Mapping[str, float] = MappingProxyType(
    {"step": 0.45, "jump": 0.30, "trade": 0.20, "structure": 0.05}
)
"""How likely each kind of mutation is: one hole to the next value, one to any value, one up and
another down (factors of tiles against each other, Ansor 5.1), one structural hole to any value."""


PRESSURE = 8.0
"""How much the faster are preferred as parents.  Ansor's 1 is too little for few generations: on
twenty independent holes the best after four is three times as far from the optimum."""
REDRAWS = 3
"""How often a mutant that is illegal is drawn anew."""


def mutate(
    table: Table, parents: Array, rng: np.random.Generator, kinds: Mapping[str, float] = KINDS
) -> Array:
    """One legal child per parent.

    (mr=6, nv=2)  ->  (7, 2) by a step, (12, 2) by a jump, (8, 1) by a trade
    """
    children, holes = _mutants(table, parents, rng, kinds)
    illegal = np.flatnonzero(~table.legal(children))
    if not table.is_open:
        children[illegal] = table.repair(children[illegal], holes[illegal])
        return children
    for _ in range(REDRAWS):
        if not len(illegal):
            break
        children[illegal], _ = _mutants(table, parents[illegal], rng, kinds)
        illegal = illegal[~table.legal(children[illegal])]
    children[illegal] = parents[illegal]
    return children


def _mutants(
    table: Table, parents: Array, rng: np.random.Generator, kinds: Mapping[str, float]
) -> tuple[Array, Array]:
    """One child per parent, legal or not, and the holes that were moved."""
    sizes = np.array([len(v) for v in table.values])
    numeric = np.flatnonzero((sizes > 1) & ~table.structure)
    structural = np.flatnonzero((sizes > 1) & table.structure)
    count = len(parents)
    if not count or not len(numeric) + len(structural):
        return parents.copy(), np.zeros(count, np.int64)
    odds = np.array(list(kinds.values()))
    kind = np.array(list(kinds))[rng.choice(len(odds), size=count, p=odds / odds.sum())]
    rare = (kind == "structure") & (len(structural) > 0) | (len(numeric) == 0)
    hole = _draw(numeric, count, rng)
    hole = np.where(rare, _draw(structural, count, rng), hole)
    every = np.arange(count)
    ranks = table.ranks(parents)
    here, size = ranks[every, hole], sizes[hole]
    step = rng.choice([-1, 1], size=count)
    step = np.where((here + step < 0) | (here + step >= size), -step, step)
    elsewhere = (here + 1 + rng.integers(np.maximum(size - 1, 1))) % size
    steps = ~rare & np.isin(kind, ("step", "trade"))
    ranks[every, hole] = np.where(steps, here + step, elsewhere)
    if len(numeric) > 1:
        other = _draw(numeric, count, rng)
        trades = steps & (kind == "trade") & (other != hole)
        moved = np.clip(ranks[every, other] - step, 0, sizes[other] - 1)
        ranks[every, other] = np.where(trades, moved, ranks[every, other])
    return _values(table, ranks), hole


def cross(table: Table, mothers: Array, fathers: Array, rng: np.random.Generator) -> Array:
    """Legal children with the holes of each stage from one parent or the other.

    (i.a=1, i.b=2, j=3) and (i.a=4, i.b=5, j=6)  ->  (1, 2, 6) or (4, 5, 3) or a parent

    What Ansor calls node-based crossover (5.1): the decisions about a stage stay together.
    """
    count = len(mothers)
    if not count:
        return mothers
    stages = int(table.groups.max()) + 1
    chosen = (rng.random((count, stages)) < 0.5)[:, table.groups]
    children = np.where(chosen, mothers, fathers)
    illegal = np.flatnonzero(~table.legal(children))
    if table.is_open:
        children[illegal] = mothers[illegal]
    else:
        kept = rng.integers(children.shape[1], size=len(illegal))
        children[illegal] = table.repair(children[illegal], kept)
    return children


def roulette(
    scores: Array, count: int, rng: np.random.Generator, pressure: float = PRESSURE
) -> Array:
    """Numbers drawn in proportion to a power of the expected speeds, whose logarithms are given."""
    odds = np.exp(pressure * (scores - np.max(scores)))
    return rng.choice(len(scores), size=count, p=odds / odds.sum())


def breed(
    table: Table, parents: Array, scores: Array, count: int, mutation: float,
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    """The next generation of a population: mostly mutants, the rest crossed."""
    mutants = int(rng.binomial(count, mutation))
    mothers, fathers = (parents[roulette(scores, count - mutants, rng)] for _ in range(2))
    children = mutate(table, parents[roulette(scores, mutants, rng)], rng)
    return np.concatenate([children, cross(table, mothers, fathers, rng)])


def _draw(holes: Array, count: int, rng: np.random.Generator) -> Array:
    return holes[rng.integers(len(holes), size=count)] if len(holes) else np.zeros(count, np.int64)


def _values(table: Table, ranks: Array) -> Array:
    return np.stack([v[r] for v, r in zip(table.values, ranks.T)], axis=1)
