"""The sketch of stages along rows on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.families.gpu_rows.lower import lower_gpu_rows
from whet.schedule.families.gpu_rows.match import GpuRows, GpuRowTiling, find_gpu_rows
from whet.schedule.families.gpu_rows.price import gpu_row_costs, gpu_row_holes
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task


class GpuRowsSketch(Sketch[GpuRows, GpuTarget]):
    """Threads that share rows; `match` shows the program."""

    name = "gpu_rows"
    numeric: Numeric = "exact"
    machine: ClassVar[str] = GpuTarget.kind

    def fits(self, task: Task) -> GpuRows | None:
        return find_gpu_rows(task)

    def space(self, form: GpuRows, target: GpuTarget, threads: int) -> Population:
        return gpu_row_holes(form, target, threads)

    def costs(
        self, form: GpuRows, target: GpuTarget, threads: int, population: Population
    ) -> Array:
        return gpu_row_costs(form, target, threads, population)

    def lower(self, form: GpuRows, holes: Mapping[str, int], name: str) -> Kernel:
        return lower_gpu_rows(form, GpuRowTiling(**holes), name)
