"""The sketches of attention with a running maximum on GPUs: one for every leaf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from whet.core.gpu import GpuTarget
from whet.core.precision import STRICT
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.families.gpu_attention.match import AttentionTiling
from whet.schedule.families.gpu_contraction.match import FFMA, FP32X3, MMA, TF32, Leaf
from whet.schedule.families.gpu_running.lower import lower_running_attention
from whet.schedule.families.gpu_running.match import RunningAttention, find_running_attention
from whet.schedule.families.gpu_running.price import running_costs
from whet.schedule.families.gpu_running.space import running_holes
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task


@dataclass(frozen=True)
class RunningAttentionOnGpu(Sketch[RunningAttention, GpuTarget]):
    """Attention over any number of keys, whose tiles one kind of leaf multiplies."""

    name: str
    leaf: Leaf
    numeric: Numeric = "real"
    machine: ClassVar[str] = GpuTarget.kind

    def chains(self) -> frozenset[tuple[str, ...]]:
        return frozenset({("product", "rows", "product"), ("product", "move")})

    def fits(self, task: Task) -> RunningAttention | None:
        return find_running_attention(task, self.leaf)

    def space(self, form: RunningAttention, target: GpuTarget, threads: int) -> Population:
        every = running_holes(form, target)
        allowed = self.leaf.precision in (STRICT, target.precision)
        return every if allowed else {name: column[:0] for name, column in every.items()}

    def costs(
        self, form: RunningAttention, target: GpuTarget, threads: int, population: Population
    ) -> Array:
        return running_costs(form, target, population)

    def lower(self, form: RunningAttention, holes: Mapping[str, int], name: str) -> Kernel:
        return lower_running_attention(form, AttentionTiling(**holes), name)


GPU_RUNNING_ATTENTION = tuple(
    RunningAttentionOnGpu(f"gpu_running_{leaf.name}", leaf) for leaf in (MMA, TF32, FP32X3, FFMA)
)
