"""AutoTVM's model: trees that rank the candidates of a task (Chen et al. 2018).

Only the order within a task is learned, from knobs, loops or curves; curves mean the same in all
tasks, so what other tasks taught can be the start for a new one, and counts for less the more is
known of that one: its weight halves with every 64 trials and is dropped below a twentieth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from whet.core.types import Array
from whet.tune.models.analytic import Analytic
from whet.tune.models.boosting import Ensemble, Rows, TreeSettings, grow, varies
from whet.tune.models.protocol import Batch, CostModel, Trials
from whet.tune.models.samples import FEATURES, Kind, Samples, gather

GRADES = 31
"""How finely throughput is graded, from failures to the task's best."""
HALVED_EVERY = 64
LEAST_DISCOUNT = 0.05
FEWEST_TRIALS = 8


@dataclass(frozen=True, eq=False)
class RankingTrees:
    """The trees' score, on top of a discounted base model."""

    trees: Ensemble
    feature: Kind
    base: CostModel | None = None
    discount: float = 0.0

    def scores(self, batch: Batch) -> Array:
        learned = self.trees.predict(FEATURES[self.feature](batch).matrix)
        return learned if self.base is None else learned + self.discount * self.base.scores(batch)


@dataclass(frozen=True)
class RankingLearner:
    """Learns the order of candidates.

    `knob` is for trials of one sketch and task; the others take those of any.
    """

    feature: Kind = "curve"
    base: CostModel | None = None
    settings: TreeSettings = field(default_factory=lambda: TreeSettings(100, 15))

    def on(self, base: CostModel) -> RankingLearner:
        return replace(self, base=base)

    def fit(self, trials: Sequence[Trials]) -> CostModel:
        good = sum(int(np.isfinite(t.seconds).sum()) for t in trials)
        if good < FEWEST_TRIALS:
            return Analytic() if self.base is None else self.base
        discount = discount_after(sum(len(t.batch) for t in trials)) if self.base else 0.0
        base = self.base if discount else None

        samples = gather(trials, base or Analytic(), self.feature)
        if not varies(samples.matrix):
            return self.base or Analytic()
        taught, judged = samples.split()
        settings = self.settings
        if judged is not None:
            held = _rows(judged, base, discount)
            _, rounds = grow(settings, _rows(taught, base, discount), OBJECTIVE, held,
                             _misordered(judged))  # fmt: skip
            settings = replace(settings, rounds=rounds)
        trees, _ = grow(settings, _rows(samples, base, discount), OBJECTIVE)
        return RankingTrees(trees, self.feature, base, discount)


OBJECTIVE = {
    "objective": "lambdarank",
    "label_gain": list(range(GRADES + 1)),
    "lambdarank_truncation_level": 64,
}


def discount_after(trials: int) -> float:
    """The weight of a base model after so many trials of the task itself."""
    discount: float = 2.0 ** (-trials / HALVED_EVERY)
    return discount if discount >= LEAST_DISCOUNT else 0.0


def _rows(samples: Samples, base: CostModel | None, discount: float) -> Rows:
    """The candidates grouped by task, graded by throughput."""
    order = np.argsort(samples.tasks, kind="stable")
    _, sizes = np.unique(samples.tasks[order], return_counts=True)
    grades = np.rint(samples.throughput[order] * GRADES)
    start = samples.base[order] * discount if base is not None else None
    return Rows(samples.matrix[order], start, grades, [int(n) for n in sizes])


def _misordered(samples: Samples) -> Callable[[Array], float]:
    """The share of pairs of one task, more than a twentieth apart, in the wrong order."""
    order = np.argsort(samples.tasks, kind="stable")
    tasks, throughput = samples.tasks[order], samples.throughput[order]

    def loss(predicted: Array) -> float:
        wrong = pairs = 0.0
        for number in np.unique(tasks):
            score, true = predicted[tasks == number], throughput[tasks == number]
            apart = true[:, None] > 1.05 * true[None]
            wrong += float((apart & (score[:, None] <= score[None])).sum())
            pairs += float(apart.sum())
        return wrong / max(pairs, 1.0)

    return loss
