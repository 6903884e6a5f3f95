"""The sketches of attention on GPUs: one for every leaf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from whet.core.gpu import GpuTarget
from whet.core.precision import STRICT
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.families.gpu_attention.lower import lower_gpu_attention
from whet.schedule.families.gpu_attention.match import (
    AttentionTiling,
    GpuAttention,
    find_gpu_attention,
)
from whet.schedule.families.gpu_attention.price import attention_costs
from whet.schedule.families.gpu_attention.space import attention_holes
from whet.schedule.families.gpu_contraction.match import FFMA, FP32X3, MMA, TF32, Leaf
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task


@dataclass(frozen=True)
class AttentionOnGpu(Sketch[GpuAttention, GpuTarget]):
    """Attention whose tiles one kind of leaf multiplies."""

    name: str
    leaf: Leaf
    numeric: Numeric = "exact"
    machine: ClassVar[str] = GpuTarget.kind

    def chains(self) -> frozenset[tuple[str, ...]]:
        return frozenset({("product", "rows", "product"), ("product", "move")})

    def fits(self, task: Task) -> GpuAttention | None:
        return find_gpu_attention(task, self.leaf)

    def space(self, form: GpuAttention, target: GpuTarget, threads: int) -> Population:
        every = attention_holes(form, target)
        allowed = self.leaf.precision in (STRICT, target.precision)
        return every if allowed else {name: column[:0] for name, column in every.items()}

    def costs(
        self, form: GpuAttention, target: GpuTarget, threads: int, population: Population
    ) -> Array:
        return attention_costs(form, target, population)

    def lower(self, form: GpuAttention, holes: Mapping[str, int], name: str) -> Kernel:
        return lower_gpu_attention(form, AttentionTiling(**holes), name)


GPU_ATTENTION = tuple(
    AttentionOnGpu(f"gpu_attention_{leaf.name}", leaf) for leaf in (MMA, TF32, FP32X3, FFMA)
)
