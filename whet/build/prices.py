"""What steps of a plan cost: as measured where that is known, else as the analytic model expects.

Planning asks two questions: what does a kernel cost, and is it cheaper to compute two groups of
nodes together or one after the other?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from whet.core.errors import NoCodeError
from whet.core.target import Target
from whet.ops.base import Numeric
from whet.schedule.default import default_choice
from whet.schedule.rates import rates_of
from whet.tasks.task import Task

Evidence = Callable[[Task, Sequence[Task]], bool | None]
"""Says from measurements whether one task is faster than others that compute the same; None
where that is not known."""


class Price(Protocol):
    """What is expected to be how expensive, in nanoseconds."""

    def __call__(self, task: Task) -> float:
        """The kernel of a task alone, which finds its inputs nearby."""

    def round_trip(self, nbytes: int) -> float:
        """Values of that size, from one kernel to the next."""

    def prefers(self, together: Task, apart: Sequence[Task], between: int) -> bool:
        """Whether one kernel is cheaper than several with so many bytes between them."""


def no_evidence(together: Task, apart: Sequence[Task]) -> bool | None:
    """Nothing was measured."""
    return None


@dataclass(frozen=True, eq=False)
class Prices:
    """The analytic model's prices; measured times, where there are, decide what is cheaper."""

    target: Target
    threads: int
    numerics: Numeric
    evidence: Evidence = no_evidence
    known: dict[str, float] = field(default_factory=dict)

    def __call__(self, task: Task) -> float:
        """Nanoseconds of a task's kernel alone; infinity if there is no code for it."""
        if task.key not in self.known:
            self.known[task.key] = self._price(task)
        return self.known[task.key]

    def round_trip(self, nbytes: int) -> float:
        """Nanoseconds to write values that the next kernel reads from beyond the second cache.

        Most could stay there, but do not: weights pass through it meanwhile, and threads read
        what others wrote.
        """
        rates = rates_of(self.target)
        return 2 * nbytes / (rates.l3_bytes * rates.clock * self.threads)

    def prefers(self, together: Task, apart: Sequence[Task], between: int) -> bool:
        found = self.evidence(together, apart)
        if found is not None:
            return found
        return self(together) < sum(map(self, apart)) + self.round_trip(between)

    def _price(self, task: Task) -> float:
        try:
            return default_choice(task, self.target, self.threads, self.numerics).nanoseconds
        except NoCodeError:
            return math.inf
