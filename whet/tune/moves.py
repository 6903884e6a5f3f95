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
REDRAWS = 6
"""How often a mutant that is illegal is drawn anew."""


def mutate(
    table: Table, parents: Array, rng: np.random.Generator, kinds: Mapping[str, float] = KINDS
) -> Array:
    """One legal child per parent.

    (mr=6, nv=2)  ->  (7, 2) by a step, (12, 2) by a jump, (8, 1) by a trade
    """
    odds = np.array(list(kinds.values()))
    drawn = rng.choice(len(odds), size=len(parents), p=odds / odds.sum())
    kind = np.array(list(kinds))[drawn]
    rare = (kind == "structure") & (len(table.shapes.rows) > 1)
    children = parents.copy()
    children[rare] = _restructured(table, parents[rare], rng)
    left = np.flatnonzero(~rare)
    for _ in range(REDRAWS if table.is_open else 1):
        if not len(left):
            break
        children[left], holes = _moved(table, parents[left], kind[left], rng)
        illegal = ~table.legal(children[left])
        left, holes = left[illegal], holes[illegal]
    if len(left) and not table.is_open:
        children[left] = table.repair(children[left], holes)
    elif len(left):
        children[left] = parents[left]
    return children


def _restructured(table: Table, parents: Array, rng: np.random.Generator) -> Array:
    """The same candidates with another structure; where that is illegal, any others of it."""
    shapes = table.shapes
    chosen = rng.integers(len(shapes.rows), size=len(parents))
    examples = np.array([rng.choice(shapes.rows[n]) for n in chosen], np.int64)
    others = table.matrix[examples]
    children = np.where(table.structure, others, parents)
    illegal = ~table.legal(children)
    children[illegal] = others[illegal]
    return children


def _moved(
    table: Table, parents: Array, kind: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """One child per parent, legal or not, and the holes that were moved."""
    count, every = len(parents), np.arange(len(parents))
    sizes = np.array([len(v) for v in table.values])
    # Only holes that have several values in the structure of the parent are moved.
    active = table.shapes.moves[table.shapes.of(parents[:, table.structure])]
    lots = np.where(active, rng.random(active.shape), -1.0)
    hole = np.argmax(lots, axis=1)
    lots[every, hole] = -1.0
    other = np.argmax(lots, axis=1)
    ranks = table.ranks(parents)
    here, size = ranks[every, hole], sizes[hole]
    step = rng.choice([-1, 1], size=count)
    step = np.where((here + step < 0) | (here + step >= size), -step, step)
    elsewhere = (here + 1 + rng.integers(np.maximum(size - 1, 1))) % size
    near = np.isin(kind, ("step", "trade")) & (size > 1)
    ranks[every, hole] = np.where(near, here + step, elsewhere)
    trades = near & (kind == "trade") & (lots[every, other] >= 0)
    moved = np.clip(ranks[every, other] - step, 0, sizes[other] - 1)
    ranks[every, other] = np.where(trades, moved, ranks[every, other])
    return _values(table, ranks), hole


def cross(table: Table, mothers: Array, fathers: Array, rng: np.random.Generator) -> Array:
    """Legal children with the holes of each stage from one parent or the other.

    (i.a=1, i.b=2, j=3) and (i.a=4, i.b=5, j=6)  ->  (1, 2, 6) or (4, 5, 3)

    What Ansor calls node-based crossover (5.1): the decisions about a stage stay together, and the
    structure is the mother's.  Where that gives nothing new, as when the parents differ in one
    stage only, loops are exchanged instead; where that does not either, a mutant stands in.
    """
    children, left = mothers.copy(), np.arange(len(mothers))
    stages = table.stages[table.shapes.of(mothers[:, table.structure])]
    loops = np.where(stages > 0, 1 + table.loops, 0)
    for parts in (*[stages] * REDRAWS, *[loops] * REDRAWS):
        if not len(left):
            return children
        children[left] = _exchanged(table, mothers[left], fathers[left], parts[left], rng)
        copies = [(children[left] == p[left]).all(axis=1) for p in (mothers, fathers)]
        left = left[copies[0] | copies[1] | ~table.legal(children[left])]
    children[left] = mutate(table, mothers[left], rng)
    return children


def _exchanged(
    table: Table, mothers: Array, fathers: Array, parts: Array, rng: np.random.Generator
) -> Array:
    """One child per pair, each part by chance from either; what is in part 0 is the mother's."""
    inherits = rng.random((len(parts), int(parts.max()) + 1)) < 0.5
    inherits[:, 0] = False
    children = np.where(np.take_along_axis(inherits, parts, axis=1), fathers, mothers)
    if not table.is_open:
        illegal = np.flatnonzero(~table.legal(children))
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
    children = mutate(table, parents[roulette(scores, mutants, rng)], rng)
    mothers, fathers = (parents[roulette(scores, count - mutants, rng)] for _ in range(2))
    return np.concatenate([children, cross(table, mothers, fathers, rng)])


def _values(table: Table, ranks: Array) -> Array:
    return np.stack([v[r] for v, r in zip(table.values, ranks.T)], axis=1)
