"""Prices of tasks on a GPU: the cheapest candidate of its sketches, found once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from whet.core.gpu import GpuTarget
from whet.ops.base import Numeric
from whet.schedule.cost.numbers.gpus import BYTES_BETWEEN
from whet.schedule.default import draft, drafted
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import allowed_sketches
from whet.schedule.space.sketch import Choice
from whet.tasks.price import Estimate, Evidence, cheaper_together, no_evidence
from whet.tasks.task import Task

GPU_ERROR = 0.3
"""What estimates of single kernels may be off by; that of contractions was fitted to measured
kernels, those of others were not."""


@dataclass(frozen=True, eq=False)
class GpuPrice:
    """The analytic model's prices; measured times, where there are, decide what is cheaper.

    The time to start a kernel is part of its price, so that one kernel instead of two is cheaper by
    it.
    """

    controls: ClassVar[bool] = False
    run: ClassVar[int] = 4

    target: GpuTarget
    numerics: Numeric
    evidence: Evidence = no_evidence
    drafts: dict[str, Choice | None] = field(default_factory=dict)
    """The choices of tasks that were asked for, by key."""

    def choice(self, task: Task) -> Choice | None:
        if task.key not in self.drafts:
            self.drafts[task.key] = draft(task, self.target, 1, self.numerics)
        return self.drafts[task.key]

    def kernel(self, task: Task, name: str) -> Kernel:
        found = drafted(task, self.choice(task))
        return found.sketch.lower(found.sketch.fits(task), found.holes, name)

    def __call__(self, task: Task) -> Estimate | None:
        found = self.choice(task)
        return None if found is None else Estimate(found.nanoseconds / 1e9, "analytic", GPU_ERROR)

    def joins(self, kinds: tuple[str, ...]) -> bool:
        return any(kinds in made.chains() for made in allowed_sketches(self.target, self.numerics))

    def between(self, nbytes: int) -> float:
        return nbytes / BYTES_BETWEEN / 1e9

    def prefers(self, together: Task, apart: Sequence[Task], nbytes: int) -> bool:
        if self(together) is None:
            return False
        found = self.evidence(together, apart)
        return cheaper_together(self, together, apart, nbytes) if found is None else found
