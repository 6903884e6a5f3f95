"""The sketches of contractions on GPUs: one for every leaf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from whet.core.gpu import GpuTarget
from whet.core.precision import STRICT
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.families.gpu_contraction.lower import lower_gpu_contraction
from whet.schedule.families.gpu_contraction.match import (
    FFMA,
    FP32X3,
    MMA,
    TF32,
    GpuContraction,
    Leaf,
    Tiling,
    find_gpu_contraction,
)
from whet.schedule.families.gpu_contraction.price import gpu_costs
from whet.schedule.families.gpu_contraction.space import gpu_holes
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task


@dataclass(frozen=True)
class ContractionOnGpu(Sketch[GpuContraction, GpuTarget]):
    """Contractions whose tiles one kind of leaf multiplies."""

    name: str
    leaf: Leaf
    numeric: Numeric = "exact"
    machine: ClassVar[str] = GpuTarget.kind

    def chains(self) -> frozenset[tuple[str, ...]]:
        return frozenset({("phase", "phase")})

    def fits(self, task: Task) -> GpuContraction | None:
        return find_gpu_contraction(task, self.leaf)

    def space(self, form: GpuContraction, target: GpuTarget, threads: int) -> Population:
        every = gpu_holes(form, target)
        allowed = self.leaf.precision in (STRICT, target.precision)
        return every if allowed else {name: column[:0] for name, column in every.items()}

    def costs(
        self, form: GpuContraction, target: GpuTarget, threads: int, population: Population
    ) -> Array:
        return gpu_costs(form, target, population)

    def lower(self, form: GpuContraction, holes: Mapping[str, int], name: str) -> Kernel:
        return lower_gpu_contraction(form, Tiling(**holes), name)


GPU_FFMA = ContractionOnGpu("gpu_ffma", FFMA)
GPU_MMA = ContractionOnGpu("gpu_mma", MMA)
GPU_TF32 = ContractionOnGpu("gpu_tf32", TF32)
GPU_FP32X3 = ContractionOnGpu("gpu_fp32x3", FP32X3)
