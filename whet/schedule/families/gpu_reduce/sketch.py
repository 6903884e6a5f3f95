"""The sketch of long reductions on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.families.gpu_reduce.lower import lower_gpu_reduce
from whet.schedule.families.gpu_reduce.match import GpuReduce, GpuReduceTiling, find_gpu_reduce
from whet.schedule.families.gpu_reduce.price import gpu_reduce_costs, gpu_reduce_holes
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task


class GpuReduceSketch(Sketch[GpuReduce, GpuTarget]):
    """Threads that share the terms of outputs; `match` shows the program."""

    name = "gpu_reduce"
    numeric: Numeric = "exact"
    machine: ClassVar[str] = GpuTarget.kind
    structure: ClassVar[tuple[str, ...]] = ("along", "ranks")

    def fits(self, task: Task) -> GpuReduce | None:
        return find_gpu_reduce(task)

    def space(self, form: GpuReduce, target: GpuTarget, threads: int) -> Population:
        return gpu_reduce_holes(form, target, threads)

    def costs(
        self, form: GpuReduce, target: GpuTarget, threads: int, population: Population
    ) -> Array:
        return gpu_reduce_costs(form, target, threads, population)

    def lower(self, form: GpuReduce, holes: Mapping[str, int], name: str) -> Kernel:
        return lower_gpu_reduce(form, GpuReduceTiling(**holes), name)
