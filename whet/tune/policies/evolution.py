"""Evolutionary search on a cost model (Ansor, section 5.1)."""

from __future__ import annotations

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
    """How a population lives; the numbers are Ansor's."""

    population: int = 2048
    generations: int = 4
    mutation: float = 0.85
    survivors: float = 0.2
    """The share of the first generation that comes from the best trials."""


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
    """All that lived, by table.

    Spaces no larger than the population are scored as a whole: there is nothing to evolve.
    """
    if not space.tables:
        return []
    share = -(-habits.population // len(space.tables))
    alive = []
    for number, table in enumerate(space.tables):
        tried = sorted((row for row in known if row[0] == number), key=lambda row: known[row])
        kept = [row for _, row in tried[: int(habits.survivors * share)]]
        matrix = np.concatenate([table.matrix[kept], table.sample(share - len(kept), rng)])
        if not table.is_open and len(table.matrix) <= share:
            matrix = table.matrix
        matrix = matrix[distinct(matrix)]
        alive.append(Scored(number, matrix, judge.scores(space, number, matrix)))
    seen = list(alive)
    whole = all(
        not t.is_open and len(s.matrix) == len(t.matrix) for t, s in zip(space.tables, seen)
    )
    for _ in range(0 if whole else habits.generations):
        alive = next_generation(space, alive, judge, habits, rng)
        seen = [a + b for a, b in zip(seen, alive)]
    return seen


def next_generation(
    space: Space, alive: list[Scored], judge: Judge, habits: Habits, rng: np.random.Generator
) -> list[Scored]:
    """Children of parents drawn over all sketches, so that good sketches spread."""
    owners = np.repeat([s.number for s in alive], [len(s.matrix) for s in alive])
    scores = np.concatenate([s.scores for s in alive])
    drawn = owners[roulette(scores, habits.population, rng)]
    made = []
    for s in alive:
        count = int(np.sum(drawn == s.number))
        if not count:
            made.append(Scored(s.number, s.matrix[:0], s.scores[:0]))
            continue
        table = space.tables[s.number]
        children = breed(table, s.matrix, s.scores, count, habits.mutation, rng)
        children = children[distinct(children)]
        made.append(Scored(s.number, children, judge.scores(space, s.number, children)))
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
