"""Trials that are made once: a candidate that was measured before gets its recorded times.

Policies are compared on the same times, whoever tries a candidate first, and a comparison that
was stopped goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from whet.core.cpu import CpuTarget
from whet.db.record import Record, holes_text
from whet.db.store import Database
from whet.measure.cpu.measurer import Measurer
from whet.measure.records import record_of
from whet.measure.results import Candidate, Comparison, Measured
from whet.tasks.task import Task


class OutOfTime(Exception):  # noqa: N818 - how a comparison ends
    """There is no time left to measure what is not recorded."""


class Replay:
    """A measurer that remembers."""

    def __init__(self, database: Database, measurer: Measurer) -> None:
        self.database, self.measurer = database, measurer
        self.end = float("inf")
        self.live = self.replayed = 0
        self._tasks: dict[tuple[str, str, int], dict[tuple[str, str], Record]] = {}

    def limit(self, seconds: float) -> None:
        """From now on, measure for so many seconds; after that only replay."""
        self.end = time.monotonic() + seconds

    def records(self, task: Task, target: CpuTarget, threads: int) -> dict[tuple[str, str], Record]:
        """What is known about a task, by sketch and holes."""
        place = (task.key, target.key, threads)
        if place not in self._tasks:
            found = self.database.records(task.key, target, threads)
            self._tasks[place] = {(r.sketch, holes_text(r.holes)): r for r in found}
        return self._tasks[place]

    def measure(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: CpuTarget
    ) -> list[Measured]:
        known = self.records(task, target, threads)
        keys = [(c.sketch, holes_text(c.holes)) for c in candidates]
        fresh = [c for c, key in zip(candidates, keys) if key not in known]
        if fresh and time.monotonic() > self.end:
            raise OutOfTime(f"{len(fresh)} candidates are not measured yet")
        for m in self.measurer.measure(task, fresh, threads, target) if fresh else ():
            record = record_of(m, task, target, threads)
            self.database.add([record])
            known[m.candidate.sketch, holes_text(m.candidate.holes)] = record
        self.live += len(fresh)
        self.replayed += len(candidates) - len(fresh)
        return [
            Measured(c, known[k].outcome, known[k].samples, checked=True)
            for c, k in zip(candidates, keys)
        ]

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: CpuTarget
    ) -> Iterator[Measured]:
        return iter(self.measure(task, candidates, threads, target))

    def compare(
        self, task: Task, candidate: Candidate, incumbent: Candidate, threads: int,
        target: CpuTarget, seconds: float = 0.0,
    ) -> Comparison:  # fmt: skip
        """By what is recorded: nothing runs."""
        a, b = (m.seconds for m in self.measure(task, [candidate, incumbent], threads, target))
        return Comparison(a < b, a / b, a / b, a / b)

    def best(self, task: Task, target: CpuTarget, threads: int) -> float:
        """The shortest time that is known of a task."""
        found = [r.seconds for r in self.records(task, target, threads).values()]
        return min((s for s in found if s is not None), default=float("inf"))
