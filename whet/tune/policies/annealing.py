"""AutoTVM's search: simulated annealing on a model, and a batch that is good and diverse."""

from __future__ import annotations

import numpy as np

from whet.core.types import Array
from whet.tune.models.protocol import Learner
from whet.tune.moves import mutate
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.evolution import Scored, favourites
from whet.tune.policies.judge import ANALYTIC, Judge, learned
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space, distinct
from whet.tune.timing import FAILED

JUMPS = {"jump": 0.95, "structure": 0.05}
CHAINS, STEPS = 128, 200
PATIENCE = 50
"""Steps without a better row after which the chains stop."""
SPARE = 4
"""Of how many times as many rows a batch is chosen."""
DIVERSITY = 0.02
"""What a value that no other row of the batch has is worth, by the speed of the fastest row."""
CHANCE = 0.05


class Annealing:
    """Chains that climb the model's scores while they cool down ("Learning to Optimize", 2018).

    Of the best rows that the chains met, a batch is taken that is fast and that tries many
    different values.
    """

    def __init__(self, learner: Learner | None = None) -> None:
        self.learner = learner

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        judge = learned(self.learner, space, known) or ANALYTIC
        scored = [self.anneal(space, n, known, judge, rng) for n in range(len(space.tables))]
        lucky = int(rng.binomial(count, CHANCE))
        pool = favourites(scored, space, known, SPARE * count)
        scores = np.concatenate(
            [judge.scores(space, n, space.tables[n].matrix[[r]]) for n, r in pool]
        ) if pool else np.zeros(0)  # fmt: skip
        chosen = diverse(space, pool, scores, count - lucky, DIVERSITY)
        taken = {**known, **dict.fromkeys(chosen, FAILED)}
        return chosen + RandomSearch().propose(space, taken, count - len(chosen), rng)

    def anneal(
        self, space: Space, number: int, known: Known, judge: Judge, rng: np.random.Generator
    ) -> Scored:
        """Everything that the chains of one table met.

        The chains start from the best trials, and from chance where those are too few.
        """
        table = space.tables[number]
        tried = sorted((row for row in known if row[0] == number), key=lambda row: known[row])
        kept = [row for _, row in tried[: CHAINS // 2]]
        start = table.sample(CHAINS - len(kept), rng)
        state = np.concatenate([table.matrix[kept], start])
        scores = judge.scores(space, number, state)
        met, met_scores = [state.copy()], [scores.copy()]
        best, idle = float(scores.max(initial=-np.inf)), 0
        for step in range(STEPS):
            temperature = 1.0 - step / STEPS
            if idle > PATIENCE or not len(state):
                break
            moved = mutate(table, state, rng, JUMPS)
            found = judge.scores(space, number, moved)
            accepted = rng.random(len(moved)) < np.exp(
                np.minimum(0.0, found - scores) / temperature
            )
            state[accepted], scores[accepted] = moved[accepted], found[accepted]
            met.append(moved)
            met_scores.append(found)
            top = float(found.max())
            idle = 0 if top > best else idle + 1
            best = max(best, top)
        matrix = np.concatenate(met)
        first = distinct(matrix)
        return Scored(number, matrix[first], np.concatenate(met_scores)[first])


def diverse(
    space: Space, pool: list[Row], scores: Array, count: int, weight: float
) -> list[Row]:  # fmt: skip
    """A batch with a large sum of expected speeds plus `weight` per value that occurs in it.

    The sum is submodular, so taking what adds most, one by one, comes close to the best batch
    (equation 3 of the paper).  Speeds are relative to the best of the pool.
    """
    if not pool:
        return []
    components: dict[tuple[int, int, int], int] = {}
    has = np.zeros((len(pool), sum(len(v) for t in space.tables for v in t.values)), bool)
    for place, (number, row) in enumerate(pool):
        for hole, value in enumerate(space.tables[number].matrix[row]):
            column = components.setdefault((number, hole, int(value)), len(components))
            has[place, column] = True
    speeds = np.exp(scores - scores.max())
    new = np.ones(has.shape[1], bool)
    left = np.ones(len(pool), bool)
    chosen = []
    for _ in range(min(count, len(pool))):
        gains = np.where(left, speeds + weight * (has & new).sum(axis=1), -np.inf)
        place = int(np.argmax(gains))
        left[place] = False
        new &= ~has[place]
        chosen.append(pool[place])
    return chosen
