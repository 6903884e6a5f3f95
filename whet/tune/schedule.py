"""Schedules from the database: the best kernel that is known for a task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from whet.core.digest import digest_text
from whet.core.target import Target
from whet.db.store import Database
from whet.measure.results import Candidate
from whet.ops.base import Numeric
from whet.runtime.schedules import StoredSchedule, encode_schedules
from whet.schedule.default import default_choice
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import SKETCHES
from whet.tasks.task import Task
from whet.tune.space import make_space
from whet.tune.transfer import best_without_trials, transferred

Origin = Literal["artifact", "record", "transfer", "default"]


@dataclass(frozen=True)
class Chosen:
    """The candidate that computes a task, its origin, and the seconds to expect."""

    candidate: Candidate
    origin: Origin
    seconds: float
    """Measured for a record, else an estimate."""

    def kernel(self, task: Task, name: str) -> Kernel:
        sketch = SKETCHES[self.candidate.sketch]
        return sketch.lower(sketch.fits(task), self.candidate.holes, name)


def choose(
    task: Task, database: Database, target: Target, threads: int, numerics: Numeric = "real"
) -> Chosen:
    """The best candidate that is known: measured, else inferred from similar tasks, else the
    analytic model's."""
    record = database.best(task.key, target, threads)
    if record is not None and record.seconds is not None:
        sketch = SKETCHES.get(record.sketch)  # None for a user's that is not loaded now
        allowed = sketch is not None and (sketch.numeric == "exact" or numerics == "real")
        if sketch is not None and allowed and sketch.fits(task) is not None:
            return Chosen(Candidate(record.sketch, record.holes), "record", record.seconds)
    choice = default_choice(task, target, threads, numerics)
    default = Candidate(choice.sketch.name, choice.holes)
    donors = database.class_records(task.class_key, target, threads, without=task.key)
    if donors:
        space = make_space(task, target, threads, numerics)
        first = space.cheapest()
        found = transferred(space, donors, first)
        row = best_without_trials(found, first)
        if row is not None:
            return Chosen(space.candidate(row), "transfer", found[0].seconds)
    return Chosen(default, "default", choice.nanoseconds * 1e-9)


class Schedules:
    """The best kernel known for every task, from what came with a model and from the database."""

    def __init__(
        self,
        target: Target,
        threads: int,
        numerics: Numeric = "real",
        database: Database | None = None,
        stored: Sequence[StoredSchedule] = (),
    ) -> None:
        self.target, self.threads, self.numerics = target, threads, numerics
        self.database = database
        self.stored = {s.place: s for s in stored}

    def __call__(self, task: Task, name: str) -> Kernel:
        return self.chosen(task).kernel(task, name)

    @property
    def key(self) -> str:
        """A digest of everything that decides."""
        evidence = self.database.evidence_key(self.target, self.threads) if self.database else ""
        return digest_text(evidence, json.dumps(encode_schedules(list(self.stored.values()))))

    def chosen(self, task: Task) -> Chosen:
        """The schedule that came with the model, if it is legal; else what is known here."""
        given = self.stored.get((task.key, self.target.key, self.threads))
        if given is not None:
            space = make_space(task, self.target, self.threads, self.numerics)
            row = space.find(Candidate(given.sketch, given.holes))
            if row is not None:
                return Chosen(space.candidate(row), "artifact", space.cost(row) * 1e-9)
        if self.database is not None:
            return choose(task, self.database, self.target, self.threads, self.numerics)
        choice = default_choice(task, self.target, self.threads, self.numerics)
        default = Candidate(choice.sketch.name, choice.holes)
        return Chosen(default, "default", choice.nanoseconds * 1e-9)

    def faster(self, together: Task, apart: Sequence[Task]) -> bool | None:
        """Whether one task was measured to be faster than others that compute the same.

        A model that was tuned elsewhere says so by what came with it.
        """
        places = [(t.key, self.target.key, self.threads) for t in (together, *apart)]
        first, *rest = (place in self.stored for place in places)
        if first != all(rest):
            return first
        found = [self._measured(t) for t in (together, *apart)]
        known = [seconds for seconds in found if seconds is not None]
        return known[0] < sum(known[1:]) if len(known) == len(found) else None

    def _measured(self, task: Task) -> float | None:
        if self.database is None:
            return None
        chosen = choose(task, self.database, self.target, self.threads, self.numerics)
        return chosen.seconds if chosen.origin == "record" else None

    def used(self, tasks: Iterable[Task]) -> tuple[StoredSchedule, ...]:
        """The schedules to store with a model of these tasks, for the same kernels elsewhere.

        Schedules for other machines and numbers of threads that came with it are kept.
        """
        found = dict(self.stored)
        for task in tasks:
            chosen = self.chosen(task)
            place = (task.key, self.target.key, self.threads)
            if chosen.origin != "default":
                c = chosen.candidate
                found[place] = StoredSchedule(*place, c.sketch, dict(c.holes))
        return tuple(found.values())
