"""Prices from measurements: of a task, else of tasks like it, else what a model has learned.

    price = RecordedPrice(analytic, Schedules(target, threads, numerics, database))
    price(task)      Estimate(seconds=1.3e-4, origin="record", error=0.02)

Each price comes from the best source there is, and says from which; without a database all are
analytic.  What was found is kept, so a task and a class are looked up once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from whet.core.types import Array
from whet.schedule.default import draft
from whet.schedule.space.registry import allowed_sketches
from whet.tasks.price import Estimate, Price
from whet.tasks.task import Task
from whet.tune.models.kept import kept_model
from whet.tune.models.protocol import Batch, CostModel
from whet.tune.schedule import Schedules
from whet.tune.transfer import log_ratios

LEAST_RECORD_ERROR = 0.02
"""Times of one kernel that were taken at different times differ by this much, whatever their
samples say."""
LEAST_TRANSFER_ERROR = 0.09
"""The root mean square over 32 tasks in 6 classes, each priced by the others of its class."""
LEARNED_ERROR = 0.26
"""Two thirds of the same tasks were off by less, each priced by a model of the other classes.
Models are taught to order the candidates of a task, and not what all of these have in common."""


@dataclass(frozen=True)
class Correction:
    """The ratio of what tasks of a class take to what the analytic model expects."""

    factor: float
    error: float


@dataclass(frozen=True, eq=False)
class RecordedPrice:
    """Prices by what is known about a target, on top of analytic ones."""

    analytic: Price
    known: Schedules
    found: dict[str, Estimate | None] = field(default_factory=dict)
    """By the keys of tasks."""
    classes: dict[str, Correction | None] = field(default_factory=dict)
    """By the keys of classes; None for those without a measured task."""
    as_tuned: bool = False
    """Tasks that were not searched for are priced as if they had been: by the best of those like
    them.  A search over graphs compares new tasks with those of a graph that is tuned already."""

    def __call__(self, task: Task) -> Estimate | None:
        if task.key not in self.found:
            self.found[task.key] = self._find(task)
        return self.found[task.key]

    @property
    def controls(self) -> bool:
        return self.analytic.controls

    @property
    def run(self) -> int:
        return self.analytic.run

    def joins(self, kinds: tuple[str, ...]) -> bool:
        return self.analytic.joins(kinds)

    def between(self, nbytes: int) -> float:
        return self.analytic.between(nbytes)

    def prefers(self, together: Task, apart: Sequence[Task], nbytes: int) -> bool:
        """Whether one kernel is cheaper, by measurements where both ways have them.

        Else by analytic prices on both sides, never by the best source of each: what was measured
        includes all that an estimate overlooks, and would lose to a way that nobody has tried.
        """
        found = None if self.analytic(together) is None else self.known.faster(together, apart)
        return self.analytic.prefers(together, apart, nbytes) if found is None else found

    def _find(self, task: Task) -> Estimate | None:
        expected = self.analytic(task)
        if expected is None or self.known.database is None:
            return expected
        return (
            self._measured(task)
            or self._transferred(task, expected)
            or self._learned(task, expected)
            or expected
        )

    def _measured(self, task: Task) -> Estimate | None:
        record = self.known.measured(task)
        if record is None or record.seconds is None:
            return None
        of_median = 1.25 * _spread(np.log(record.samples)) / math.sqrt(len(record.samples))
        return Estimate(record.seconds, "record", max(LEAST_RECORD_ERROR, of_median))

    def _transferred(self, task: Task, expected: Estimate) -> Estimate | None:
        if task.class_key not in self.classes:
            self.classes[task.class_key] = self._correction(task.class_key)
        found = self.classes[task.class_key]
        if found is None:
            return None
        return Estimate(found.factor * expected.seconds, "transfer", found.error)

    def _correction(self, class_key: str) -> Correction | None:
        """The median of measured by expected times of the tasks that were measured.

        Of each the default speaks, which is what is priced: what the model expected to be fastest
        is tried first, and the best of all trials is one that it was too pessimistic about.  With
        `as_tuned` the best of each is compared with what was expected of its default.
        """
        known = self.known
        assert known.database is not None
        sketches = allowed_sketches(known.target, known.numerics)
        drafting = {made.name for made in sketches if made.drafts_default}
        records = known.database.class_records(class_key, known.target, known.threads)
        tried = [r for r in records if r.seconds and r.estimate and r.sketch in drafting]
        tried.sort(key=lambda r: r.estimate or 0.0, reverse=True)
        defaults = {r.workload.key: r for r in tried}  # the last of each, of equal ones the latest
        if self.as_tuned:
            best: dict[str, float] = {}
            for r in tried:
                key, seconds = r.workload.key, r.seconds or math.inf
                best[key] = min(best.get(key, math.inf), seconds)
            expected = {key: r.estimate or math.inf for key, r in defaults.items()}
            ratios = np.log([best[key] / expected[key] for key in best])
        else:
            ratios = log_ratios(defaults.values())
        if not len(ratios):
            return None
        error = max(LEAST_TRANSFER_ERROR, _spread(ratios))
        return Correction(math.exp(float(np.median(ratios))), error)

    @cached_property
    def _model(self) -> CostModel | None:
        """The model that trials of other tasks have taught."""
        database = self.known.database
        return None if database is None else kept_model(database, self.known.target)

    def _learned(self, task: Task, expected: Estimate) -> Estimate | None:
        """The draft as the model corrects it, if that is better than the analytic price."""
        if expected.error <= LEARNED_ERROR or self._model is None:
            return None
        known = self.known
        choice = draft(task, known.target, known.threads, known.numerics)
        if choice is None:
            return None
        holes = {hole: np.array([value]) for hole, value in choice.holes.items()}
        batch = Batch(task, choice.sketch, choice.form, known.target, known.threads, holes)
        (score,) = self._model.scores(batch)
        return Estimate(math.exp(-score), "learned", LEARNED_ERROR)


def _spread(logarithms: Array) -> float:
    """One standard deviation, by the middle two thirds: outliers do not count."""
    low, high = np.quantile(logarithms, [1 / 6, 5 / 6])
    return float(high - low) / 2
