"""The default schedule: the analytic model's best point over all sketches that fit a task."""

from __future__ import annotations

from whet.core.errors import NoCodeError, fail
from whet.core.target import Target
from whet.ir.tensor import Compute, describe, stages
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import choices, last_choices
from whet.schedule.space.sketch import Choice
from whet.tasks.task import Task


def draft(task: Task, target: Target, threads: int, numerics: Numeric = "real") -> Choice | None:
    """The candidate that the analytic model expects to be fastest; None where no sketch fits.

    Sums in another order are always allowed; `exact` forbids what is equal only over the reals.
    """
    found = list(choices(task, target, threads, numerics))
    if not found and sum(isinstance(t, Compute) for t in stages(task.outputs)) == 1:
        # Several stages can be given a kernel each; a single one has to be taken as it is.
        found = list(last_choices(task, target, threads, numerics))
    return min(found, key=lambda choice: choice.nanoseconds, default=None)


def default_choice(task: Task, target: Target, threads: int, numerics: Numeric = "real") -> Choice:
    """The draft of a task that must have one."""
    return drafted(task, draft(task, target, threads, numerics))


def drafted(task: Task, found: Choice | None) -> Choice:
    """The draft that was found; `NoCodeError` where there is none."""
    if found is None:
        fail("WH1303", f"no sketch fits {describe(*task.outputs)}", kind=NoCodeError)
    return found


def default_kernel(
    task: Task, target: Target, threads: int, name: str, numerics: Numeric = "real"
) -> Kernel:
    """The kernel of the default choice."""
    return default_choice(task, target, threads, numerics).kernel(name)
