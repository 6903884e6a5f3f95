"""Who says which candidates look fast: the analytic model, or one that learned from trials."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.core.types import Array
from whet.tune.models.protocol import CostModel, Learner, Trials
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space

ENOUGH_TRIALS = 16
"""With fewer trials of a task there is nothing to learn from."""


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores candidates: minus the logarithm of expected times, comparable within a task."""

    model: CostModel | None = None
    """None for the analytic model, whose estimates tables have."""

    def scores(self, space: Space, number: int, matrix: Array) -> Array:
        table = space.tables[number]
        if self.model is None:
            return -np.log(np.maximum(table.price(matrix), 1e-3))
        if not len(matrix):
            return np.zeros(0)
        assert table.offer is not None, "only the analytic model knows tables without a sketch"
        return self.model.scores(table.offer.batch(table.population(matrix)))


ANALYTIC = Judge()


def learned(learner: Learner | None, space: Space, known: Known) -> Judge | None:
    """The model that the learner makes of the trials so far, on top of what others taught.

    None when there are too few trials, of this task and of others.
    """
    if learner is None or any(table.offer is None for table in space.tables):
        return None  # without their sketches, rows have no features
    started = learner if space.base is None else learner.on(space.base)
    if sum(t.ok for t in known.values()) < ENOUGH_TRIALS:
        return None if space.base is None else Judge(started.fit([]))
    return Judge(started.fit(trials_of(space, known)))


def trials_of(space: Space, known: Known) -> list[Trials]:
    """The trials of a task, sketch by sketch."""
    found = []
    for number, table in enumerate(space.tables):
        tried: list[Row] = [row for row in known if row[0] == number]
        if tried and table.offer is not None:
            holes = table.population(table.matrix[[row for _, row in tried]])
            seconds = np.array([float(known[row]) for row in tried])
            found.append(Trials(table.offer.batch(holes), seconds))
    return found
