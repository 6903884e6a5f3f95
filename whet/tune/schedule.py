"""Schedules from the database: the best kernel that is known for a task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whet.core.digest import digest_text
from whet.core.target import Target
from whet.db.record import Record
from whet.db.store import Database
from whet.measure.results import Candidate
from whet.ops.base import Numeric
from whet.runtime.schedules import Place, StoredSchedule, encode_schedules
from whet.schedule.default import default_choice
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.triggers import other_triggers
from whet.schedule.space.registry import SKETCHES
from whet.tasks.steps import Plan
from whet.tasks.task import Task
from whet.tune.space import Row, Space, make_space
from whet.tune.transfer import best_without_trials, transferred

Origin = Literal["artifact", "network", "record", "transfer", "default"]


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
    record = best_record(task, database, target, threads, numerics)
    if record is not None and record.seconds is not None:
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


def best_record(
    task: Task, database: Database, target: Target, threads: int, numerics: Numeric
) -> Record | None:
    """The record of the best candidate that was measured, if it can be used."""
    record = database.best(task.key, target, threads)
    return record if record and is_usable(record.sketch, task, numerics) else None


def is_usable(name: str, task: Task, numerics: Numeric) -> bool:
    """Whether candidates of a sketch can be used for a task."""
    sketch = SKETCHES.get(name)  # a user's may not be loaded now
    if sketch is None or (sketch.numeric == "real" and numerics == "exact"):
        return False
    return sketch.fits(task) is not None


class Schedules:
    """The best kernel known for every task, from what came with a model and from the database."""

    def __init__(
        self,
        target: Target,
        threads: int,
        numerics: Numeric = "real",
        database: Database | None = None,
        stored: Sequence[StoredSchedule] = (),
        network: str = "",
    ) -> None:
        """`network` is the key of the plan that all tasks are those of, if it matters."""
        self.target, self.threads, self.numerics = target, threads, numerics
        self.database, self.network = database, network
        self.stored = {s.place: s for s in stored}
        self.refined = chosen_within(network, database, target, threads) if network else {}

    def __call__(self, task: Task, name: str) -> Kernel:
        return self.chosen(task).kernel(task, name)

    @property
    def key(self) -> str:
        """A digest of everything that decides."""
        evidence = self.database.evidence_key(self.target, self.threads) if self.database else ""
        return digest_text(evidence, json.dumps(encode_schedules(list(self.stored.values()))))

    def within(self, network: str) -> Schedules:
        """The same for the tasks of one plan, for which other kernels may have been chosen."""
        made = Schedules(
            self.target, self.threads, self.numerics, self.database, list(self.stored.values()),
            network,
        )  # fmt: skip
        given = any(place[-1] == network for place in self.stored)
        return made if made.refined or given else self

    def chosen(self, task: Task) -> Chosen:
        """The schedule that came with the model, if it is legal; else what is known here."""
        for network in dict.fromkeys((self.network, "")):
            given = self.stored.get(self._place(task, network))
            if given is not None:
                space = make_space(task, self.target, self.threads, self.numerics)
                candidate = Candidate(given.sketch, given.holes)
                row = offered_row(space, candidate, self.target)
                if row is not None:
                    return Chosen(candidate, "artifact", space.cost(row) * 1e-9)
        if self.database is not None:
            known = choose(task, self.database, self.target, self.threads, self.numerics)
            refined = self.refined.get(task.key)
            if refined is not None and is_usable(refined.sketch, task, self.numerics):
                return replace(known, candidate=refined, origin="network")
            return known
        choice = default_choice(task, self.target, self.threads, self.numerics)
        default = Candidate(choice.sketch.name, choice.holes)
        return Chosen(default, "default", choice.nanoseconds * 1e-9)

    def faster(self, together: Task, apart: Sequence[Task]) -> bool | None:
        """Whether one task was measured to be faster than others that compute the same.

        A model that was tuned elsewhere says so by what came with it.
        """
        places = [self._place(t) for t in (together, *apart)]
        first, *rest = (place in self.stored for place in places)
        if first != all(rest):
            return first
        found = [self.measured(t) for t in (together, *apart)]
        known = [r.seconds for r in found if r is not None and r.seconds is not None]
        return known[0] < sum(known[1:]) if len(known) == len(found) else None

    def measured(self, task: Task) -> Record | None:
        """The best record of a task here, if it can be used."""
        if self.database is None:
            return None
        return best_record(task, self.database, self.target, self.threads, self.numerics)

    def used(self, plans: Iterable[Plan]) -> tuple[StoredSchedule, ...]:
        """The schedules to store with a model of these plans, for the same kernels elsewhere.

        Schedules for other machines and numbers of threads that came with it are kept.
        """
        found = dict(self.stored)
        for plan in plans:
            within = self.within(plan.key)
            for task in plan.tasks.values():
                usual = self.chosen(task)
                here = usual if within is self else within.chosen(task)
                if usual.origin != "default":
                    self._store(found, task, usual.candidate)
                if here.candidate != usual.candidate:
                    self._store(found, task, here.candidate, plan.key)
        return tuple(found.values())

    def _store(
        self,
        found: dict[Place, StoredSchedule],
        task: Task,
        candidate: Candidate,
        network: str = "",
    ) -> None:
        made = StoredSchedule(
            task.key, self.target.key, self.threads, candidate.sketch, dict(candidate.holes),
            network,
        )  # fmt: skip
        found[made.place] = made

    def _place(self, task: Task, network: str = "") -> Place:
        return task.key, self.target.key, self.threads, network


def chosen_within(
    network: str, database: Database | None, target: Target, threads: int
) -> dict[str, Candidate]:
    """The candidates that were chosen inside a network, by the keys of their tasks."""
    if database is None:
        return {}
    trials = database.network_trials(network, target, threads)
    return {t.workload.key: Candidate(t.sketch, t.holes) for t in trials if t.kept}


def offered_row(space: Space, candidate: Candidate, target: Target) -> Row | None:
    """The row of a candidate that sketches offer, or of one that differs from it only in when the
    next kernel may be launched."""
    holes = (candidate.holes, *other_triggers(candidate.holes, target))
    rows = (space.find(Candidate(candidate.sketch, h)) for h in holes)
    return next((row for row in rows if row is not None), None)
