"""The sketch of turned values on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.families.gpu_turned.lower import lower_gpu_turned
from whet.schedule.families.gpu_turned.match import GpuTurned, GpuTurnedTiling, find_gpu_turned
from whet.schedule.families.gpu_turned.price import gpu_turned_costs, gpu_turned_holes
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task


class GpuTurnedSketch(Sketch[GpuTurned, GpuTarget]):
    """Tiles that go through shared memory; `match` shows the program."""

    name = "gpu_turned"
    numeric: Numeric = "exact"
    machine: ClassVar[str] = GpuTarget.kind

    def fits(self, task: Task) -> GpuTurned | None:
        return find_gpu_turned(task)

    def space(self, form: GpuTurned, target: GpuTarget, threads: int) -> Population:
        return gpu_turned_holes(form, target, threads)

    def costs(
        self, form: GpuTurned, target: GpuTarget, threads: int, population: Population
    ) -> Array:
        return gpu_turned_costs(form, target, threads, population)

    def lower(self, form: GpuTurned, holes: Mapping[str, int], name: str) -> Kernel:
        return lower_gpu_turned(form, GpuTurnedTiling(**holes), name)
