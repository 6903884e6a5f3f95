"""Trees on the statements of programs (Ansor, section 5.2).

A program's score is the sum over its statements.  The squared error of that sum, weighted by the
throughput of the program because fast ones matter, has the gradient of the program's error in
each of its rows.  Two things can be learned this way:

    CorrectionLearner    how far a base model (by default the analytic one) is off: the logarithm
                         of measured by expected seconds, up to a constant of the task
    ThroughputLearner    the throughput itself, relative to the task's best, as Ansor does
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from whet.core.types import Array
from whet.tune.models.analytic import Analytic
from whet.tune.models.boosting import (
    MANY_TASKS,
    ONE_TASK,
    Ensemble,
    Gradient,
    Rows,
    TreeSettings,
    grow,
    varies,
)
from whet.tune.models.protocol import Batch, CostModel, Trials
from whet.tune.models.samples import FEATURES, FEWEST_TASKS, Kind, Samples, gather

FEWEST_TRIALS = 8
"""Below this many good trials there is nothing to learn."""
LEAST_WEIGHT = 0.02

Error = Callable[[Samples, Array], Array]
"""From candidates' predictions to their errors."""


@dataclass(frozen=True, eq=False)
class SummedTrees:
    """base + sum of the trees over the rows of a program."""

    trees: Ensemble
    rows: Kind
    base: CostModel | None = None

    def scores(self, batch: Batch) -> Array:
        rows = FEATURES[self.rows](batch)
        learned: Array = np.bincount(rows.owners, self.trees.predict(rows.matrix), len(batch))
        return learned if self.base is None else self.base.scores(batch) + learned


@dataclass(frozen=True)
class CorrectionLearner:
    """Learns what the base model gets wrong.

    With rows of whole programs (the main statement and the mean of all) instead of statements,
    the sum has one term; that needs fewer trials to learn from.
    """

    base: CostModel = field(default_factory=Analytic)
    rows: Kind = "programs"
    settings: TreeSettings | None = None
    """None: what suits the number of tasks."""

    def on(self, base: CostModel) -> CorrectionLearner:
        return replace(self, base=base)

    def fit(self, trials: Sequence[Trials]) -> CostModel:
        if good_trials(trials) < FEWEST_TRIALS:
            return self.base
        samples = gather(trials, self.base, self.rows)
        samples = samples.take(np.isfinite(samples.seconds))
        if not varies(samples.matrix):
            return self.base
        trees = _fitted(samples, self.settings, _correction_error)
        return SummedTrees(trees, self.rows, self.base)


@dataclass(frozen=True)
class ThroughputLearner:
    """Learns the throughput itself; failures count as none."""

    settings: TreeSettings | None = None

    def on(self, base: CostModel) -> ThroughputLearner:
        return self

    def fit(self, trials: Sequence[Trials]) -> CostModel:
        if good_trials(trials) < FEWEST_TRIALS:
            return Analytic()
        samples = gather(trials, Analytic(), "statements")
        if not varies(samples.matrix):
            return Analytic()
        return SummedTrees(_fitted(samples, self.settings, _throughput_error), "statements")


def good_trials(trials: Sequence[Trials]) -> int:
    """The number of trials that did not fail."""
    return sum(int(np.isfinite(t.seconds).sum()) for t in trials)


def _throughput_error(samples: Samples, predicted: Array) -> Array:
    result: Array = predicted - samples.throughput
    return result


def _correction_error(samples: Samples, predicted: Array) -> Array:
    """Errors about their mean within the task: a constant of the task says nothing."""
    error = samples.base + predicted + np.log(samples.seconds)
    weight = _weights(samples)
    count = len(samples.keys)
    mean = np.bincount(samples.tasks, weight * error, count) / np.maximum(
        np.bincount(samples.tasks, weight, count), 1e-12
    )
    result: Array = error - mean[samples.tasks]
    return result


def _weights(samples: Samples) -> Array:
    """Fast programs matter more.  By the root: slow ones teach what to avoid."""
    result: Array = np.sqrt(np.maximum(samples.throughput, LEAST_WEIGHT))
    return result


def _fitted(samples: Samples, given: TreeSettings | None, error: Error) -> Ensemble:
    """The trees of all samples; tasks that are held out at first say how many are best."""
    settings = given or (MANY_TASKS if len(samples.keys) >= FEWEST_TASKS else ONE_TASK)
    taught, judged = samples.split()
    if judged is not None:
        weight = _weights(judged)

        def loss(predicted: Array) -> float:
            wrong = error(judged, judged.total(predicted))
            return float(np.average(wrong**2, weights=weight))

        _, rounds = grow(settings, Rows(taught.matrix), _gradient(taught, error),
                         Rows(judged.matrix), loss)  # fmt: skip
        settings = replace(settings, rounds=rounds)
    trees, _ = grow(settings, Rows(samples.matrix), _gradient(samples, error))
    return trees


def _gradient(samples: Samples, error: Error) -> Gradient:
    weight = _weights(samples)

    def gradient(predicted: Array) -> tuple[Array, Array]:
        wrong = weight * error(samples, samples.total(predicted))
        return wrong[samples.owners], weight[samples.owners]

    return gradient
