"""Draft then verify: a cheap model screens, a learned one picks (Pruner, ASPLOS 2025)."""

from __future__ import annotations

import numpy as np

from whet.tune.models.protocol import Learner
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.draft import Draft
from whet.tune.policies.evolution import Habits, Scored, evolve, favourites
from whet.tune.policies.judge import ANALYTIC, learned
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space
from whet.tune.timing import FAILED

DRAFT = Habits(population=1536, generations=2)
"""Pruner's population on the draft model."""
DRAFTED = 512
CHANCE = 0.1


class DraftThenVerify:
    """Evolution on the analytic model alone, and the learned model's choice of its best few.

    The learned model costs many times what the analytic one does, and is right about more; it
    sees only what the analytic one lets pass.  Until there are trials to learn from, the
    analytic model's favourites are tried, spread out.
    """

    def __init__(self, learner: Learner | None = None) -> None:
        self.learner = learner

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        judge = learned(self.learner, space, known)
        if judge is None:
            return Draft(CHANCE).propose(space, known, count, rng)
        drafted = favourites(evolve(space, known, ANALYTIC, DRAFT, rng), space, known, DRAFTED)
        scored = []
        for number, table in enumerate(space.tables):
            matrix = table.matrix[[row for owner, row in drafted if owner == number]]
            scored.append(Scored(number, matrix, judge.scores(space, number, matrix)))
        lucky = int(rng.binomial(count, CHANCE))
        chosen = favourites(scored, space, known, count - lucky)
        taken = {**known, **dict.fromkeys(chosen, FAILED)}
        return chosen + RandomSearch().propose(space, taken, count - len(chosen), rng)
