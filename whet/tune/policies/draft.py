"""The analytic model's favourites."""

from __future__ import annotations

import numpy as np

from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.evolution import Habits, Scored, evolve, favourites
from whet.tune.policies.judge import ANALYTIC
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space
from whet.tune.timing import FAILED


class Draft:
    """The analytic model's favourites of every sketch, spread out, with some chance mixed in.

    The model is right about orders of magnitude and wrong about details, so neighbours of a
    favourite are worth little: of rows with estimates within a few percent of each other only
    a random one is taken, but for the very favourite of each sketch.
    """

    def __init__(self, chance: float = 0.1, ratio: float = 1.02) -> None:
        self.chance, self.ratio = chance, ratio

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        lucky = int(rng.binomial(count, self.chance))
        seen = [self._spread(s, rng) for s in evolve(space, known, ANALYTIC, Habits(), rng)]
        chosen = favourites(seen, space, known, count - lucky)
        taken = {**known, **dict.fromkeys(chosen, FAILED)}
        return chosen + RandomSearch().propose(space, taken, count - len(chosen), rng)

    def _spread(self, scored: Scored, rng: np.random.Generator) -> Scored:
        """One row of every class of nearly equal estimates."""
        classes = np.floor(scored.scores / np.log(self.ratio)).astype(np.int64)
        shuffled = rng.permutation(len(classes))
        if len(shuffled):
            shuffled = np.concatenate([[np.argmax(scored.scores)], shuffled])
        _, first = np.unique(classes[shuffled], return_index=True)
        rows = shuffled[first]
        return Scored(scored.number, scored.matrix[rows], scored.scores[rows])
