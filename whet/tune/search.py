"""The search for one task: rounds of trials on its candidates, recorded as they come."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.errors import NoCodeError, fail
from whet.core.outcomes import Outcome
from whet.core.target import Target
from whet.db.record import Record
from whet.db.store import Database
from whet.measure.records import record_of
from whet.measure.results import Candidate, Measured
from whet.measure.runner import Runner
from whet.ops.base import Numeric
from whet.tasks.task import Task
from whet.tune.models.protocol import CostModel
from whet.tune.policies import Policy
from whet.tune.report import Report
from whet.tune.roofline import roofline_seconds
from whet.tune.scheduler import Progress
from whet.tune.space import Row, Space, make_space
from whet.tune.timing import FAILED, Timing
from whet.tune.transfer import transferred

FINALISTS = 4
"""How many of the best are measured again before one is chosen."""
NEAR = 1.05
"""Times within this factor of the best may be the best but for noise."""

TRANSFERRED = 4
"""How many schedules of similar tasks a search starts with."""


@dataclass(frozen=True, eq=False)
class WeightedTask:
    """A task and how often each model runs it."""

    task: Task
    name: str
    counts: tuple[int, ...]
    alternative: bool = False
    """Whether models run others in its place, as long as those are faster together."""

    @property
    def count(self) -> int:
        """The number of times that all models together run it."""
        return 0 if self.alternative else sum(self.counts)


@dataclass(frozen=True, eq=False)
class Tools:
    """The tools that all searches share."""

    target: Target
    threads: int
    database: Database
    runner: Runner[Any]
    rng: np.random.Generator
    numerics: Numeric = "real"
    seed: int = 0
    trials_per_round: int = 8
    sketches: Callable[[str], bool] = lambda name: True
    """Which sketches, by name, may be used."""
    base: CostModel | None = None
    """The cost model that the database keeps for the target."""

    def allowed(self, space: Space) -> Space:
        """The part of a space that may be used."""
        tables = tuple(t for t in space.tables if self.sketches(t.sketch))
        return Space(space.task, tables, self.base)


class TaskSearch:
    """The knowledge about the candidates of a task, and the way to more of it."""

    def __init__(self, weighted: WeightedTask, tools: Tools, policy: Policy) -> None:
        self.weighted, self.tools, self.policy = weighted, tools, policy
        self.task = weighted.task
        whole = make_space(self.task, tools.target, tools.threads, tools.numerics)
        cheapest = whole.cheapest()
        if cheapest is None:
            fail("WH1303", f"no sketch fits task '{weighted.name}'", kind=NoCodeError)
        self.default, self.space = whole.candidate(cheapest), tools.allowed(whole)
        self.known: dict[Row, Timing] = {}
        self.numbers: dict[Row, int] = {}
        self.outcomes: dict[str, int] = {}
        self.winner: Row | None = None
        """What was confirmed after the last round."""
        first = self.space.find(self.default)
        self.seeds: list[Row] = [] if first is None else [first]
        """What is tried before anything else."""
        self.progress = Progress(
            self.task.operations, self.task.class_key, whole.cost(cheapest) * 1e-9
        )
        self._resume()
        if not self.known:
            self.seeds += self._transferred(first)

    def _transferred(self, first: Row | None) -> list[Row]:
        """The rows that trials of similar tasks suggest."""
        tools = self.tools
        donors = tools.database.class_records(
            self.task.class_key, tools.target, tools.threads, without=self.task.key
        )
        return [p.row for p in transferred(self.space, donors, first)[:TRANSFERRED]]

    def _resume(self) -> None:
        """Take up what earlier runs measured."""
        tools = self.tools
        for record in tools.database.records(self.task.key, tools.target, tools.threads):
            row = self.space.find(Candidate(record.sketch, record.holes, record.trace))
            if row is not None:
                self._note(row, record.samples if record.outcome is Outcome.OK else (), record.id)
        if self.known:
            rounds = math.ceil(len(self.known) / tools.trials_per_round)
            self.progress.best = [self.best_seconds] * rounds

    @property
    def best_seconds(self) -> float:
        return min(self.known.values(), default=math.inf)

    @property
    def default_seconds(self) -> float:
        first = self.space.find(self.default)
        return math.inf if first is None else self.known.get(first, math.inf)

    def _note(self, row: Row, samples: Sequence[float], number: int | None) -> None:
        self.known[row] = Timing(samples)
        if number is not None:
            self.numbers[row] = number

    def round(self, count: int) -> int:
        """Try up to `count` candidates; the number of trials that were made."""
        rows = [r for r in dict.fromkeys(self.seeds) if r not in self.known][:count]
        if len(rows) < count:
            pending: Mapping[Row, Timing] = {**self.known, **dict.fromkeys(rows, FAILED)}
            rows += self.policy.propose(self.space, pending, count - len(rows), self.tools.rng)
        if not rows:
            self.progress.exhausted = True
            return 0
        self.winner = None
        self._measure(rows)
        self.progress.add_round(len(rows), self.best_seconds)
        return len(rows)

    def _measure(self, rows: Sequence[Row]) -> None:
        """Measures; each trial is stored and only then counts, before the next one runs."""
        tools = self.tools
        candidates = [self.space.candidate(r) for r in rows]
        trials = tools.runner.trials(self.task, candidates, tools.threads, tools.target)
        for row, m in zip(rows, trials):
            (number,) = tools.database.add([self._record(m, row)])
            self._note(row, m.samples if m.ok else (), number)
            self.outcomes[m.outcome.value] = self.outcomes.get(m.outcome.value, 0) + 1

    def _record(self, measured: Measured, row: Row) -> Record:
        t = self.tools
        expected = self.space.cost(row) * 1e-9
        return record_of(measured, self.task, t.target, t.threads, t.seed, expected)

    @property
    def has_winner(self) -> bool:
        """Whether something was found that looks faster than the default."""
        return bool(self.progress.trials) and self.best_seconds < self.default_seconds < math.inf

    def confirm(self) -> None:
        """Let the winner and the default take turns; the winner counts only if it is faster.

        The best of many noisy times is too good to be true, and a default that is beaten may have
        been unlucky, so those near the best and the default are measured once more before; the
        latest time of each is what counts, and the turns are the latest of all.
        """
        first = self.space.find(self.default)
        if not self.has_winner or first is None or first not in self.numbers:
            return
        near = sorted(
            (r for r in self.known if self.known[r] <= NEAR * self.best_seconds),
            key=lambda r: self.known[r],
        )
        self._measure(list(dict.fromkeys([first, *near[:FINALISTS]])))
        best = min(self.known, key=lambda r: self.known[r])
        winner = first
        if best != first and best in self.numbers:
            result = self.tools.runner.compare(
                self.task, self.space.candidate(best), self.default, self.tools.threads,
                self.tools.target,
            )  # fmt: skip
            if result.outcome is Outcome.OK:
                self.known[best] = Timing(result.candidate)
                self.known[first] = Timing(result.incumbent)
                winner = best if result.better else first
        self.tools.database.promote(self.numbers[winner])
        self.winner = winner

    def report(self) -> Report:
        target, threads = self.tools.target, self.tools.threads
        best = self.winner or min(self.known, key=lambda r: self.known[r], default=None)
        schedule = "" if best is None else str(self.space.candidate(best))
        return Report(
            self.weighted.name, self.weighted.count, self.progress.trials, self.default_seconds,
            math.inf if best is None else self.known[best], dict(self.outcomes),
            self.task.operations, roofline_seconds(self.task, target, threads), schedule,
        )  # fmt: skip
