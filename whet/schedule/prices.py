"""Analytic prices: the cheapest candidate that the sketches have for a task, found once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from whet.core.cpu import CpuTarget
from whet.ops.base import Numeric
from whet.schedule.cost.arrival import leaves_last_cache, weights_in_last_cache
from whet.schedule.cost.rates import rates_of
from whet.schedule.default import draft, drafted
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import allowed_sketches
from whet.schedule.space.sketch import Choice
from whet.tasks.price import Estimate, Evidence, cheaper_together, no_evidence
from whet.tasks.task import Task

ANALYTIC_ERROR = 0.15
"""Two thirds of the default kernels of 32 tasks were within 14 % (AMD EPYC Zen 4, 2026-11-16);
`bench/model_error.py` shows the kernels of networks, of which half are within 6 %."""


@dataclass(frozen=True, eq=False)
class AnalyticPrice:
    """The analytic model's prices; measured times, where there are, decide what is cheaper."""

    controls: ClassVar[bool] = True
    run: ClassVar[int] = 1

    target: CpuTarget
    threads: int
    numerics: Numeric
    evidence: Evidence = no_evidence
    weight_bytes: int | None = None
    """Bytes of all constants of the network: what fits the last cache is found there at the next
    call.  Unknown, it is taken to come from memory."""
    drafts: dict[str, Choice | None] = field(default_factory=dict)
    """The choices of tasks that were asked for, by key."""
    prices: dict[str, Estimate | None] = field(default_factory=dict)
    """Their prices, by key."""

    def choice(self, task: Task) -> Choice | None:
        """The candidate that is expected to be fastest."""
        if task.key not in self.drafts:
            self.drafts[task.key] = draft(task, self.target, self.threads, self.numerics)
        return self.drafts[task.key]

    def kernel(self, task: Task, name: str) -> Kernel:
        """The default kernel of a task; the draft is the same whether it is guarded or not."""
        found = drafted(task, self.choice(task))
        return found.sketch.lower(found.sketch.fits(task), found.holes, name)

    def __call__(self, task: Task) -> Estimate | None:
        if task.key not in self.prices:
            self.prices[task.key] = self._price(task)
        return self.prices[task.key]

    def _price(self, task: Task) -> Estimate | None:
        found = self.choice(task)
        if found is None:
            return None
        nanoseconds = found.nanoseconds
        if self._near is not None and task.constants:
            # What is chosen stays the same: it is also good where others use the caches.
            row = {hole: np.array([value]) for hole, value in found.holes.items()}
            costs = found.sketch.costs(found.form, self._near, self.threads, row)
            nanoseconds = min(nanoseconds, float(costs[0]))
        return Estimate(nanoseconds / 1e9, "analytic", ANALYTIC_ERROR)

    @cached_property
    def _near(self) -> CpuTarget | None:
        """The target in a network whose weights stay in the last cache; None in others."""
        if self.weight_bytes is None or leaves_last_cache(self.weight_bytes, self.target):
            return None
        return weights_in_last_cache(self.target)

    def joins(self, kinds: tuple[str, ...]) -> bool:
        return any(kinds in made.chains() for made in allowed_sketches(self.target, self.numerics))

    def between(self, nbytes: int) -> float:
        """Seconds to write values that the next kernel reads from beyond the second cache.

        Most could stay there, but do not: weights pass through it meanwhile, and threads read
        what others wrote.
        """
        rates = rates_of(self.target)
        return 2 * nbytes / (rates.l3_bytes * rates.clock * self.threads) / 1e9

    def prefers(self, together: Task, apart: Sequence[Task], nbytes: int) -> bool:
        if self(together) is None:
            return False
        found = self.evidence(together, apart)
        return cheaper_together(self, together, apart, nbytes) if found is None else found
