"""Evolutionary search on a cost model (Ansor, section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whet.core.types import Array
from whet.tune.models.protocol import Learner
from whet.tune.moves import breed, roulette
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.judge import ANALYTIC, Judge, learned
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space, distinct
from whet.tune.timing import FAILED


@dataclass(frozen=True)
class Habits:
    """The habits of a population; the first numbers are Ansor's."""

    population: int = 2048
    generations: int = 4
    mutation: float = 0.85
    survivors: float = 0.2
    """The share of the first generation that comes from the best trials."""
    enumerable: int = 16384
    """Closed tables up to this size are scored as a whole: there is nothing to evolve."""


class Evolution:
    """Trials for what a population on the model's scores has come to, and a few by chance."""

    def __init__(
        self, learner: Learner | None = None, habits: Habits | None = None, chance: float = 0.05
    ) -> None:  # fmt: skip
        self.learner, self.habits, self.chance = learner, habits or Habits(), chance

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        judge = learned(self.learner, space, known) or ANALYTIC
        lucky = int(rng.binomial(count, self.chance))
        found = favourites(evolve(space, known, judge, self.habits, rng), space, known, count)
        chosen = found[: count - lucky]
        taken = {**known, **dict.fromkeys(chosen, FAILED)}
        return chosen + RandomSearch().propose(space, taken, count - len(chosen), rng)


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows of one table and what the model thinks of them."""

    number: int
    matrix: Array
    scores: Array

    def __add__(self, other: Scored) -> Scored:
        matrix = np.concatenate([self.matrix, other.matrix])
        first = distinct(matrix)
        scores = np.concatenate([self.scores, other.scores])
        return Scored(self.number, matrix[first], scores[first])


def evolve(
    space: Space, known: Known, judge: Judge, habits: Habits, rng: np.random.Generator
) -> list[Scored]:
    """All that lived, by table; small tables as a whole."""
    evolving = [
        n for n, t in enumerate(space.tables) if t.is_open or len(t.matrix) > habits.enumerable
    ]
    share = -(-habits.population // max(1, len(evolving)))
    seen = []
    for number, table in enumerate(space.tables):
        matrix = table.matrix
        if number in evolving:
            tried = sorted((row for row in known if row[0] == number), key=lambda row: known[row])
            kept = [row for _, row in tried[: int(habits.survivors * share)]]
            matrix = np.concatenate([matrix[kept], table.sample(share - len(kept), rng)])
            matrix = matrix[distinct(matrix)]
        seen.append(Scored(number, matrix, judge.scores(space, number, matrix)))
    alive = {n: seen[n] for n in evolving}
    for _ in range(habits.generations if evolving else 0):
        alive = next_generation(space, alive, judge, habits, rng)
        for number, born in alive.items():
            seen[number] += born
    return seen


def next_generation(
    space: Space,
    alive: Mapping[int, Scored],
    judge: Judge,
    habits: Habits,
    rng: np.random.Generator,
) -> dict[int, Scored]:
    """Children of parents drawn over all sketches, so that good sketches spread."""
    owners = np.repeat(list(alive), [len(s.matrix) for s in alive.values()])
    scores = np.concatenate([s.scores for s in alive.values()])
    counts = np.bincount(owners[roulette(scores, habits.population, rng)])
    made = {}
    for number in np.flatnonzero(counts):
        parents, table = alive[int(number)], space.tables[number]
        count = int(counts[number])
        children = breed(table, parents.matrix, parents.scores, count, habits.mutation, rng)
        children = children[distinct(children)]
        found = judge.scores(space, int(number), children)
        made[int(number)] = Scored(int(number), children, found)
    return made


def favourites(scored: list[Scored], space: Space, known: Known, count: int) -> list[Row]:
    """The rows with the best scores that are not known yet, the best first."""
    if not scored:
        return []
    owners = np.repeat([s.number for s in scored], [len(s.matrix) for s in scored])
    places = np.concatenate([np.arange(len(s.matrix)) for s in scored])
    # At most all that is known is in the way; only what may be proposed gets a number.
    order = np.argsort(-np.concatenate([s.scores for s in scored]), kind="stable")
    order = order[: count + len(known)]
    ranked: dict[int, Row] = {}
    for s in scored:
        mine = np.flatnonzero(owners[order] == s.number)
        numbers = space.tables[s.number].intern(s.matrix[places[order[mine]]])
        ranked.update((int(p), (s.number, int(n))) for p, n in zip(mine, numbers))
    fresh = [ranked[place] for place in sorted(ranked) if ranked[place] not in known]
    return fresh[:count]
