"""Candidates by chance alone, and all in order: what every other policy must beat."""

from __future__ import annotations

import numpy as np

from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space

ROUNDS = 4
"""How often to draw again where only known rows came out."""


class RandomSearch:
    """Every sketch equally likely, then every row of it, as Ansor samples programs (4.2)."""

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        found: dict[Row, None] = {}
        for _ in range(ROUNDS):
            if not space.tables or len(found) >= count:
                break
            chosen = rng.integers(len(space.tables), size=count)
            drawn: list[Row] = []
            for number, share in enumerate(np.bincount(chosen, minlength=len(space.tables))):
                table = space.tables[number]
                matrix = table.sample(2 * int(share), rng)  # some of it may be known
                drawn += [(number, int(n)) for n in table.intern(matrix)]
            found.update(dict.fromkeys(r for r in drawn if r not in known))
        picked = list(found)
        return [picked[n] for n in rng.permutation(len(picked))[:count]]


class GridSearch:
    """All rows that have numbers, one sketch after the other."""

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        rows = ((n, r) for n, table in enumerate(space.tables) for r in range(len(table.costs)))
        fresh = (row for row in rows if row not in known)
        return [row for row, _ in zip(fresh, range(count))]
