"""Trials as records of the database."""

from __future__ import annotations

import time

from whet.core.target import Target
from whet.db.record import Record, Workload
from whet.measure.results import Measured
from whet.tasks.task import Task


def workload_of(task: Task) -> Workload:
    """The task as the database knows it."""
    return Workload(task.key, task.class_key, task.text)


def record_of(
    measured: Measured,
    task: Task,
    target: Target,
    threads: int,
    seed: int = 0,
    estimate: float | None = None,
) -> Record:
    """The record of a trial that has just ended, of which so many seconds were expected."""
    candidate = measured.candidate
    return Record(
        workload_of(task), target, threads, candidate.sketch, candidate.holes, measured.outcome,
        measured.samples, candidate.trace, measured.message, measured.build_ms,
        measured.code_bytes, measured.checked, seed, at=time.time(),
        estimate=estimate,
    )  # fmt: skip
