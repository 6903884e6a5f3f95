"""The analytic model's favourites."""

from __future__ import annotations

import numpy as np

from whet.core.types import Array
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space
from whet.tune.timing import FAILED


class Draft:
    """The analytic model's favourites of every sketch, spread out, with some chance mixed in.

    The model is right about orders of magnitude and wrong about details, so neighbours of a
    favourite are worth little: of rows with estimates within a few percent of each other only
    a random one is taken.
    """

    def __init__(self, chance: float = 0.1, ratio: float = 1.02) -> None:
        self.chance, self.ratio = chance, ratio

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        fresh = [
            (number, row)
            for number, table in enumerate(space.tables)
            for row in self._spread(table.costs, rng)
            if (number, row) not in known
        ]
        fresh.sort(key=space.cost)
        lucky = int(rng.binomial(count, self.chance))
        chosen = fresh[: count - lucky]
        taken = {**known, **dict.fromkeys(chosen, FAILED)}
        return chosen + RandomSearch().propose(space, taken, count - len(chosen), rng)

    def _spread(self, costs: Array, rng: np.random.Generator) -> list[int]:
        """One row of every class of nearly equal estimates, the cheapest class first."""
        classes = np.floor(np.log(np.maximum(costs, 1e-9)) / np.log(self.ratio)).astype(np.int64)
        shuffled = rng.permutation(len(costs))
        _, first = np.unique(classes[shuffled], return_index=True)
        return [int(shuffled[n]) for n in first]
