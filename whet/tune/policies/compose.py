"""Policies made of policies."""

from __future__ import annotations

import numpy as np

from whet.tune.policies.droplet import Droplet
from whet.tune.policies.protocol import Known, Policy
from whet.tune.space import Row, Space


class ExploreThenDroplet:
    """A number of trials by one policy, then descent from the best of them, then the first again.

    "Explore as a Storm, Exploit as a Raindrop": few trials that cover the space, followed by
    coordinate descent, find what many more trials of the exploring policy do.
    """

    def __init__(self, explore: Policy, explored: int = 32, starts: int = 3) -> None:
        self.explore, self.explored, self.droplet = explore, explored, Droplet(starts)

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        missing = self.explored - len(known)
        if missing > 0:
            found = self.explore.propose(space, known, min(count, missing), rng)
        else:
            found = self.droplet.propose(space, known, count, rng)
        return found or self.explore.propose(space, known, count, rng)
