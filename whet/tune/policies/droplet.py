"""Coordinate descent from the best rows so far ("Exploit as a Raindrop", 2024)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from whet.tune.policies.evolution import Habits, evolve, favourites
from whet.tune.policies.judge import ANALYTIC
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space
from whet.tune.timing import is_faster

FARTHEST = 3
"""How many steps away to look when nothing nearer is better."""


class Droplet:
    """All neighbours of the best row are tried, and the best moves on when one is faster.

        (mr=6, nv=2)  ->  (5, 2) (7, 2) (6, 1) (6, 3)  ->  (4, 2) (8, 2) (6, 4)  ->  ...
                          one step in one hole, then two, then three

    Faster means by more than noise explains, over all samples of both trials.  Where nothing is,
    the row is a local optimum; what was seen around it is set aside, and the best of the rest is
    the next start.  A search that knows nothing starts with the analytic model's favourite.
    """

    def __init__(self, starts: int = 3) -> None:
        self.starts = starts

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        if not known:
            return favourites(evolve(space, known, ANALYTIC, Habits(), rng), space, known, 1)
        pool = [row for row in known if known[row].ok]
        for _ in range(self.starts):
            if not pool:
                break
            center = incumbent(pool, known)
            around: set[Row] = {center}
            for distance in range(1, FARTHEST + 1):
                shell = space.neighbours(center, distance)
                fresh = [row for row in shell if row not in known]
                if fresh:
                    return sorted(fresh, key=space.cost)[:count]
                around.update(shell)
            pool = [row for row in pool if row not in around]
        return []


def incumbent(rows: Iterable[Row], known: Known) -> Row:
    """The row that stays when each is replaced only by one that is faster beyond doubt."""
    first, *rest = rows
    best = first
    for row in rest:
        if is_faster(known[row], known[best]):
            best = row
    return best
