"""Schedules from the database: the best kernel that is known for a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from whet.core.target import Target
from whet.db.store import Database
from whet.measure.results import Candidate
from whet.ops.base import Numeric
from whet.schedule.default import default_choice
from whet.schedule.kernel import Kernel
from whet.schedule.sketch import SKETCHES
from whet.tasks.task import Task
from whet.tune.space import make_space
from whet.tune.transfer import best_without_trials, transferred

Origin = Literal["record", "transfer", "default"]


@dataclass(frozen=True)
class Chosen:
    """What a task is computed by, where that comes from, and the seconds to expect."""

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


def tuned_schedule(
    database: Database, target: Target, threads: int, numerics: Numeric = "real"
) -> Callable[[Task, str], Kernel]:
    """The function from a task and a name to the best kernel known for it."""
    return lambda task, name: choose(task, database, target, threads, numerics).kernel(task, name)
