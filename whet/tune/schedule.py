"""Schedules from the database: the best kernel that is known for a task."""

from __future__ import annotations

from collections.abc import Callable

from whet.core.target import Target
from whet.db.store import Database
from whet.ops.base import Numeric
from whet.schedule.default import default_choice
from whet.schedule.kernel import Kernel
from whet.schedule.sketch import SKETCHES
from whet.tasks.task import Task


def tuned_schedule(
    database: Database, target: Target, threads: int, numerics: Numeric = "real"
) -> Callable[[Task, str], Kernel]:
    """The function from a task and a name to the best kernel known for it.

    A task that was never measured gets the analytic model's choice.
    """

    def schedule(task: Task, name: str) -> Kernel:
        record = database.best(task.key, target, threads)
        if record is not None and record.seconds is not None:
            sketch = SKETCHES.get(record.sketch)  # None for a user's that is not loaded now
            if sketch is not None and (sketch.numeric == "exact" or numerics == "real"):
                form = sketch.fits(task)
                if form is not None:
                    return sketch.lower(form, record.holes, name)
        return default_choice(task, target, threads, numerics).kernel(name)

    return schedule
