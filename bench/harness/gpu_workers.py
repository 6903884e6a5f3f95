"""Jobs that prepare side by side and then have a GPU for themselves, one after the other."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Job = TypeVar("Job")
Measure = Callable[[], Any]
Prepare = Callable[[Job], Measure]


def measured_alone(
    prepare: Prepare[Job], jobs: Sequence[Job], processes: int
) -> Iterator[tuple[Job, Any]]:
    """Every job with what the function gives that `prepare` makes of it; None if that failed.

    Each job has a process of its own.  Of `processes` jobs at a time `prepare` runs; the functions
    that it makes run once all are prepared, in the order of the jobs, and nothing else meanwhile.
    """
    context = multiprocessing.get_context("spawn")
    slots = context.Semaphore(processes)
    started = []
    for job in jobs:
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(prepare, job, slots, there), daemon=True)
        process.start()
        there.close()
        started.append((job, here, process))
    ready = [_answer(here) is not None for _, here, _ in started]
    for (job, here, process), prepared in zip(started, ready, strict=True):
        if prepared:
            here.send(True)
        yield job, _answer(here) if prepared else None
        process.join()


def _answer(connection: Connection) -> Any:
    try:
        return connection.recv()
    except EOFError:  # the process has said why, and ended
        return None


def _work(prepare: Prepare[Job], job: Job, slots: Any, parent: Connection) -> None:
    try:
        with slots:
            measure = prepare(job)
        parent.send(True)
        parent.recv()
        parent.send(measure())
    except Exception:
        traceback.print_exc()
