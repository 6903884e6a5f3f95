"""The default schedule: the analytic model's best point over all sketches that fit a task."""

from __future__ import annotations

from whet.core.errors import NoCodeError, fail
from whet.core.target import Target
from whet.ir.tensor import describe
from whet.ops.base import Numeric
from whet.schedule import contraction, model, rows, spatial, winograd, winograd_model
from whet.schedule.kernel import Kernel
from whet.tasks.task import Task


def default_kernel(
    task: Task, target: Target, threads: int, name: str, numerics: Numeric = "real"
) -> Kernel:
    """The kernel that the analytic model expects to be fastest.

    Sums in another order are always allowed; `exact` forbids what is equal only over the reals.
    """
    c = contraction.find_contraction(task)
    if c is not None and model.groups_are_narrow(c, target):
        grouped = spatial.find_spatial(task, whole_groups=True)
        if grouped is not None and grouped.columns > c.columns:
            tiling = model.spatial_tiling(grouped, target, threads)
            return spatial.lower_spatial(grouped, tiling, name)
    if c is not None:
        ns, tiling = model.best_tiling(c, target, threads)
        if numerics == "real":
            faster = winograd_model.cheaper_winograd(c, ns, target, threads)
            if faster is not None:
                return winograd.lower_winograd(*faster, name)
        return contraction.lower_contraction(c, tiling, name)
    s = spatial.find_spatial(task)
    r = rows.find_rows(task)
    if s is not None and (r is None or model.prefers_spatial(s)):
        return spatial.lower_spatial(s, model.spatial_tiling(s, target, threads), name)
    if r is not None:
        return rows.lower_rows(r, model.row_tiling(r, target, threads), name)
    fail("WH1303", f"no sketch fits {describe(*task.outputs)}", kind=NoCodeError)
