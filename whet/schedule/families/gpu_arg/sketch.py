"""The sketch of searches for positions on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.families.gpu_arg.lower import lower_gpu_arg
from whet.schedule.families.gpu_arg.match import GpuArg, GpuArgTiling, find_gpu_arg
from whet.schedule.families.gpu_arg.price import gpu_arg_costs, gpu_arg_holes
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task


class GpuArgSketch(Sketch[GpuArg, GpuTarget]):
    """Threads that share the terms of outputs; `match` shows the program."""

    name = "gpu_arg"
    numeric: Numeric = "exact"
    machine: ClassVar[str] = GpuTarget.kind

    def fits(self, task: Task) -> GpuArg | None:
        return find_gpu_arg(task)

    def space(self, form: GpuArg, target: GpuTarget, threads: int) -> Population:
        return gpu_arg_holes(form, target, threads)

    def costs(self, form: GpuArg, target: GpuTarget, threads: int, population: Population) -> Array:
        return gpu_arg_costs(form, target, threads, population)

    def lower(self, form: GpuArg, holes: Mapping[str, int], name: str) -> Kernel:
        return lower_gpu_arg(form, GpuArgTiling(**holes), name)
