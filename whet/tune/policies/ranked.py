"""All rows by the analytic model, the best first: where building is what takes time."""

from __future__ import annotations

import numpy as np

from whet.tune.policies.evolution import Habits, Scored, evolve, favourites
from whet.tune.policies.judge import ANALYTIC
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space
from whet.tune.timing import FAILED


class Ranked:
    """The analytic model's favourites; of rows that it cannot tell apart one, as long as there are
    others.

        5000 ns  5001 ns  5200 ns  5201 ns   ->   5000 ns  5200 ns, and then 5001 ns  5201 ns

    Rows that differ in what the model hardly sees are neighbours: coordinate descent tries them
    where it pays.
    """

    def __init__(self, ratio: float = 1.001) -> None:
        self.ratio = ratio

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        every = evolve(space, known, ANALYTIC, Habits(), rng)
        chosen = favourites([self._apart(s) for s in every], space, known, count)
        taken = {**known, **dict.fromkeys(chosen, FAILED)}
        return chosen + favourites(every, space, taken, count - len(chosen))

    def _apart(self, scored: Scored) -> Scored:
        """The first row of every class of nearly equal estimates."""
        order = np.argsort(-scored.scores, kind="stable")
        behind = scored.scores.max(initial=-np.inf) - scored.scores[order]
        _, first = np.unique(np.floor(behind / np.log(self.ratio)), return_index=True)
        rows = order[first]
        return Scored(scored.number, scored.matrix[rows], scored.scores[rows])
