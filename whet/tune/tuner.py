"""The tuner: rounds of trials on the tasks of one or several models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whet.core.target import Target
from whet.db.store import Database
from whet.measure.runner import COMPARE_SECONDS, Runner
from whet.ops.base import Numeric
from whet.tune.models.kept import keep_if_wiser, kept_model
from whet.tune.objectives import Objective, Total
from whet.tune.policies import POLICIES, Policy
from whet.tune.policies.judge import trials_of
from whet.tune.report import Report, Status, Watch
from whet.tune.scheduler import Scheduler
from whet.tune.search import TaskSearch, Tools, WeightedTask

TRIALS_PER_ROUND = 8
CONFIRM_SHARE = 0.2
"""The most of a time budget that is kept for confirming winners."""
CONFIRM_SECONDS = 2 * COMPARE_SECONDS
"""What confirming one takes, builds included."""


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many seconds or trials, whichever comes first."""

    seconds: float = math.inf
    trials: int | None = None


class Tuner:
    """Tunes the tasks of one or several models, which share what is found.

    `policy` makes the policy of a task; all that a policy goes by are the task's trials.
    """

    def __init__(
        self,
        tasks: Sequence[WeightedTask],
        target: Target,
        threads: int,
        database: Database,
        runner: Runner[Any],
        *,
        numerics: Numeric = "real",
        policy: Callable[[], Policy] = POLICIES["default"],
        objective: Objective | None = None,
        trials_per_round: int = TRIALS_PER_ROUND,
        sketches: Callable[[str], bool] = lambda name: True,
        seed: int = 0,
    ) -> None:
        self.tools = Tools(target, threads, database, runner, np.random.default_rng(seed),
                           numerics, seed, trials_per_round, sketches,
                           kept_model(database, target))  # fmt: skip
        self.searches = [TaskSearch(t, self.tools, policy()) for t in tasks]
        weights = np.array([t.counts for t in tasks], np.float64).reshape(len(tasks), -1).T
        self.used = weights * np.array([not t.alternative for t in tasks])
        """The weights of what the models run: alternatives are searched for as well."""
        self.scheduler = Scheduler(
            [s.progress for s in self.searches], weights, objective or Total()
        )

    def run(self, budget: Budget, watch: Watch | None = None) -> None:
        """Search until the budget is used up, the objective is met or every space is known.

        Whatever has been measured is in the database already when this is interrupted.
        """
        start = time.monotonic()
        done = 0
        while True:
            elapsed = time.monotonic() - start
            left = None if budget.trials is None else budget.trials - done
            if elapsed >= budget.seconds - self._kept(budget) or left == 0:
                break
            chosen = self.scheduler.next(self.tools.rng)
            if chosen is None:
                break
            most = self.tools.trials_per_round
            done += self.searches[chosen].round(most if left is None else min(most, left))
            if watch is not None:
                watch(self.reports(), self._status(budget, start, done))
        for search in self.searches:
            search.confirm()
        self._teach()

    def _teach(self) -> None:
        """Keep what all trials teach for the searches of other tasks."""
        trials = [t for s in self.searches for t in trials_of(s.space, s.known)]
        keep_if_wiser(self.tools.database, self.tools.target, trials)

    def _kept(self, budget: Budget) -> float:
        """Seconds that confirming what was found will take."""
        if math.isinf(budget.seconds):
            return 0.0
        winners = sum(s.has_winner for s in self.searches)
        return min(CONFIRM_SHARE * budget.seconds, CONFIRM_SECONDS * winners)

    def _status(self, budget: Budget, start: float, done: int) -> Status:
        elapsed = time.monotonic() - start
        standing = replace(self.scheduler.standing(), weights=self.used)
        return Status(
            done, elapsed, max(0.0, budget.seconds - elapsed),
            None if budget.trials is None else budget.trials - done,
            self.scheduler.objective.value(standing),
        )  # fmt: skip

    def reports(self) -> list[Report]:
        return [s.report() for s in self.searches]
