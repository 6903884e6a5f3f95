"""One policy for every kind of machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whet.tune.policies.protocol import Known, Policy
from whet.tune.space import Row, Space


class ByMachine:
    """The policy for the machine that a space's sketches are for, else the usual one."""

    def __init__(self, usual: Policy, special: Mapping[str, Policy]) -> None:
        self.usual, self.special = usual, special

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        offers = [table.offer for table in space.tables]
        machines = {offer.sketch.machine for offer in offers if offer is not None}
        chosen = [self.special[m] for m in sorted(machines) if m in self.special]
        return (chosen or [self.usual])[0].propose(space, known, count, rng)
