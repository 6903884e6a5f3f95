"""The sketch of one stage on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.families.gpu_spatial.lower import lower_gpu_spatial
from whet.schedule.families.gpu_spatial.match import GpuSpatialTiling, find_gpu_spatial
from whet.schedule.families.gpu_spatial.price import gpu_spatial_costs, gpu_spatial_holes
from whet.schedule.families.spatial.match import Spatial
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task


class GpuSpatialSketch(Sketch[Spatial, GpuTarget]):
    """Tiles of outputs, one for every thread; `match` shows the program."""

    name = "gpu_spatial"
    numeric: Numeric = "exact"
    machine: ClassVar[str] = GpuTarget.kind

    def fits(self, task: Task) -> Spatial | None:
        return find_gpu_spatial(task)

    def space(self, form: Spatial, target: GpuTarget, threads: int) -> Population:
        return gpu_spatial_holes(form, target, threads)

    def costs(
        self, form: Spatial, target: GpuTarget, threads: int, population: Population
    ) -> Array:
        return gpu_spatial_costs(form, target, threads, population)

    def lower(self, form: Spatial, holes: Mapping[str, int], name: str) -> Kernel:
        return lower_gpu_spatial(form, GpuSpatialTiling(**holes), name)
