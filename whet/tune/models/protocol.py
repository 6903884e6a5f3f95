"""The protocol of cost models: what searches ask them, and what they learn from.

    batch = make_batch(task, "contraction", holes, target, threads)
    scores = model.scores(batch)                       one number per candidate, higher is better
    better = learner.fit([Trials(batch, seconds), ...])            another model, from trials

A score is minus the logarithm of the seconds that the model expects, up to a constant that all
candidates of one task share, whatever sketch they are of: `exp(a - b)` is how much faster the
first is.  Models do not change; learning gives a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from whet.core.errors import check
from whet.core.target import Target
from whet.core.types import Array
from whet.schedule.space.registry import find_sketch
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Batch:
    """Candidates of one sketch for one task."""

    task: Task
    sketch: Sketch[Any, Any]
    form: Any
    """What the sketch found in the task."""
    target: Target
    threads: int
    holes: Population

    def __len__(self) -> int:
        return len(next(iter(self.holes.values())))

    @cached_property
    def draft(self) -> Array:
        """Seconds that the analytic model expects."""
        costs = self.sketch.costs(self.form, self.target, self.threads, self.holes)
        return np.asarray(costs, np.float64) * 1e-9

    def take(self, rows: Array) -> Batch:
        """Some of the candidates."""
        holes = {name: column[rows] for name, column in self.holes.items()}
        return Batch(self.task, self.sketch, self.form, self.target, self.threads, holes)


def make_batch(
    task: Task, sketch: str, holes: Population, target: Target, threads: int
) -> Batch:  # fmt: skip
    """Candidates by the name of their sketch, which must fit the task."""
    found = find_sketch(sketch)
    form = found.fits(task)
    check(form is not None, "WH2121", f"the sketch '{sketch}' does not fit the task")
    return Batch(task, found, form, target, threads, holes)


@dataclass(frozen=True, eq=False)
class Trials:
    """Candidates that were measured: seconds, infinity where a trial failed."""

    batch: Batch
    seconds: Array


class CostModel(Protocol):
    """Says which candidates should be fast."""

    def scores(self, batch: Batch) -> Array:
        """Minus the logarithm of the expected seconds, up to a constant of the task."""


class Learner(Protocol):
    """Makes cost models from trials."""

    def fit(self, trials: Sequence[Trials]) -> CostModel:
        """The model that follows from these trials, those of any number of tasks."""

    def on(self, base: CostModel) -> Learner:
        """The learner that starts from a model, as far as it can."""
