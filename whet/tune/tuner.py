"""The tuner: rounds of trials on the tasks of a model, kept in the database as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.outcomes import Outcome
from whet.core.target import Target
from whet.db.store import Database
from whet.measure.measurer import Measurer
from whet.measure.records import record_of
from whet.measure.results import Candidate
from whet.ops.base import Numeric
from whet.schedule.default import default_choice
from whet.tasks.task import Task
from whet.tune.policy import DraftThenDroplet, Policy
from whet.tune.scheduler import Progress, next_task
from whet.tune.space import Row, Space, make_space

TRIALS_PER_ROUND = 8


@dataclass(frozen=True, eq=False)
class WeightedTask:
    """A task and how often the model runs it."""

    task: Task
    name: str
    count: int


@dataclass(frozen=True)
class Report:
    """How tuning went for one task."""

    name: str
    count: int
    trials: int
    default_seconds: float
    best_seconds: float
    outcomes: Mapping[str, int]


Watch = Callable[[Sequence[Report], float], None]
"""Called after every round with the state of all tasks and the seconds that are left."""


class Tuner:
    """Tunes the tasks of one or several models."""

    def __init__(
        self,
        tasks: Sequence[WeightedTask],
        target: Target,
        threads: int,
        database: Database,
        measurer: Measurer,
        *,
        numerics: Numeric = "real",
        policy: Policy | None = None,
        seed: int = 0,
    ) -> None:
        self.target, self.threads, self.database = target, threads, database
        self.measurer, self.policy = measurer, policy or DraftThenDroplet()
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.searches = [_TaskSearch(t, self, numerics) for t in tasks]

    def run(self, seconds: float, trials: int | None = None, watch: Watch | None = None) -> None:
        """Search until time or trials are used up or every space is known.

        Whatever has been measured is in the database already when this is interrupted.
        """
        end = time.monotonic() + seconds
        left = trials
        while time.monotonic() < end and (left is None or left > 0):
            chosen = next_task([s.progress for s in self.searches], self.rng)
            if chosen is None:
                break
            count = TRIALS_PER_ROUND if left is None else min(TRIALS_PER_ROUND, left)
            done = self.searches[chosen].round(count)
            left = None if left is None else left - done
            if watch is not None:
                watch(self.reports(), max(0.0, end - time.monotonic()))
        for search in self.searches:
            search.confirm()

    def reports(self) -> list[Report]:
        return [s.report() for s in self.searches]


class _TaskSearch:
    """The search for one task."""

    def __init__(self, weighted: WeightedTask, tuner: Tuner, numerics: Numeric) -> None:
        self.weighted, self.tuner, self.task = weighted, tuner, weighted.task
        self.space: Space = make_space(self.task, tuner.target, tuner.threads, numerics)
        choice = default_choice(self.task, tuner.target, tuner.threads, numerics)
        self.default = Candidate(choice.sketch.name, choice.holes)
        self.known: dict[Row, float] = {}
        self.numbers: dict[Row, int] = {}
        self.outcomes: dict[str, int] = {}
        kind = self.space.tables[0].sketch if self.space.tables else ""
        self.progress = Progress(weighted.count, self.task.operations, kind)
        self.resume()

    def resume(self) -> None:
        """Take up what earlier runs measured, unless it was of another machine state."""
        for record in self.tuner.database.records(
            self.task.key, self.tuner.target, self.tuner.threads
        ):
            row = self.space.find(Candidate(record.sketch, record.holes))
            if row is not None:
                self.note(row, record.seconds, record.id)

    def note(self, row: Row, seconds: float | None, number: int | None) -> None:
        self.known[row] = float("inf") if seconds is None else seconds
        if number is not None:
            self.numbers[row] = number

    def round(self, count: int) -> int:
        """Try up to `count` candidates; the number of trials that were made."""
        rows = self.tuner.policy.propose(self.space, self.known, count, self.tuner.rng)
        first = self.space.find(self.default)
        if first is not None and first not in self.known:
            rows = [first, *(r for r in rows if r != first)][: max(count, 1)]
        if not rows:
            self.progress.exhausted = True
            return 0
        measured = self.tuner.measurer.measure(
            self.task, [self.space.candidate(r) for r in rows], self.tuner.threads,
            self.tuner.target,
        )  # fmt: skip
        tuner = self.tuner
        numbers = tuner.database.add(
            [record_of(m, self.task, tuner.target, tuner.threads, tuner.seed) for m in measured]
        )
        for row, m, number in zip(rows, measured, numbers):
            self.note(row, m.seconds if m.ok else None, number)
            self.outcomes[m.outcome.value] = self.outcomes.get(m.outcome.value, 0) + 1
        self.progress.trials += len(rows)
        self.progress.best.append(min(self.known.values(), default=float("inf")))
        return len(rows)

    def confirm(self) -> None:
        """Let the winner and the default take turns; the winner counts only if it is faster."""
        first = self.space.find(self.default)
        if first is None or first not in self.known or not self.progress.trials:
            return
        best = min(self.known, key=lambda r: self.known[r])
        if best == first or best not in self.numbers or first not in self.numbers:
            return
        result = self.tuner.measurer.compare(
            self.task, self.space.candidate(best), self.default, self.tuner.threads,
            self.tuner.target,
        )  # fmt: skip
        winner = best if result.outcome is Outcome.OK and result.better else first
        self.tuner.database.promote(self.numbers[winner])

    def report(self) -> Report:
        first = self.space.find(self.default)
        base = self.known.get(first, float("inf")) if first is not None else float("inf")
        best = min(self.known.values(), default=float("inf"))
        return Report(self.weighted.name, self.weighted.count, self.progress.trials, base, best,
                      dict(self.outcomes))  # fmt: skip
