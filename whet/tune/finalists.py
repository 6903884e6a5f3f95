"""The candidates of a task that are tried inside a network: the best of those measured alone."""

from __future__ import annotations

from whet.core.outcomes import Outcome
from whet.core.target import Target
from whet.db.record import Record
from whet.db.store import Database
from whet.measure.results import Candidate
from whet.ops.base import Numeric
from whet.schedule.program.triggers import HOLE, other_triggers
from whet.tasks.task import Task
from whet.tune.schedule import is_usable

FINALISTS = 4
NEAR = 1.25
"""How much longer than the best one a finalist may take by itself."""


def finalists(
    task: Task, database: Database, target: Target, threads: int, numerics: Numeric
) -> list[Candidate]:
    """The best candidates that were checked, the fastest first.

    Of those that differ only in when the next kernel may be launched there is one: kernels that
    follow themselves say little about that, and all of these are tried.
    """
    latest: dict[int | None, Record] = {}
    wrong: set[int | None] = set()
    for record in database.records(task.key, target, threads):
        latest[record.id] = record
        if record.outcome is Outcome.WRONG_ANSWER:
            wrong.add(record.id)
    sound = [
        (record.seconds, record)
        for number, record in latest.items()
        if record.seconds is not None
        and record.checked
        and number not in wrong
        and not record.trace
        and is_usable(record.sketch, task, numerics)
    ]
    sound.sort(key=lambda pair: pair[0])
    distinct: dict[str, Candidate] = {}
    for seconds, record in sound:
        if seconds <= NEAR * sound[0][0]:
            candidate = Candidate(record.sketch, record.holes)
            distinct.setdefault(_without_trigger(candidate), candidate)
    return list(distinct.values())[:FINALISTS]


def variants(candidate: Candidate, target: Target) -> list[Candidate]:
    """The candidates that differ only in when the next kernel may be launched."""
    return [Candidate(candidate.sketch, h) for h in other_triggers(candidate.holes, target)]


def _without_trigger(candidate: Candidate) -> str:
    holes = {name: n for name, n in candidate.holes.items() if name != HOLE}
    return Candidate(candidate.sketch, holes).key
