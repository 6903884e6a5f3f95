"""Prices of tasks: what planning and the search over graphs ask, and who can answer.

    estimate = price(task)                  seconds of its best kernel, or None: no sketch fits it
    price.between(nbytes)                   seconds of values on their way from kernel to kernel
    price.prefers(together, apart, nbytes)  one kernel, or several with so much between them?

Everything that decides by cost takes a `Price`; `whet.schedule.prices` has the analytic one and
`whet.tune.prices` the one that knows what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from whet.tasks.task import Task

Origin = Literal["record", "transfer", "learned", "analytic"]
"""Where a price comes from: this task was measured; one like it was, and the analytic price is
corrected by what was found there; a model learned the correction; the analytic model alone."""
ORIGINS: tuple[Origin, ...] = get_args(Origin)
"""All of them, those that can be trusted most first."""

Evidence = Callable[[Task, Sequence[Task]], bool | None]
"""Says from measurements whether one task is faster than others that compute the same; None
where that is not known."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time of the best known kernel of a task."""

    seconds: float
    origin: Origin
    error: float
    """What it may be off by, relative to itself: one standard deviation."""

    def __str__(self) -> str:
        return f"{self.seconds * 1e6:.1f} us, {self.error:.0%} more or less, {self.origin}"


class Price(Protocol):
    """Expected costs on one target."""

    @property
    def controls(self) -> bool:
        """Whether loops and branches of a graph can be part of its segments."""

    @property
    def run(self) -> int:
        """Neighbours along a sum that kernels bring at once: rows are filled up to it."""

    def __call__(self, task: Task) -> Estimate | None:
        """The kernel of a task alone, which finds its inputs nearby; None if no sketch fits."""

    def joins(self, kinds: tuple[str, ...]) -> bool:
        """Whether some sketch computes groups of these kinds, one after the other, as one: asked
        before a task is made of them.  `product` sums products, `rows` goes along rows, `phase` is
        one of several sums that make a result, `move` only moves one."""

    def between(self, nbytes: int) -> float:
        """Seconds of values of that size, from one kernel to the next."""

    def prefers(self, together: Task, apart: Sequence[Task], nbytes: int) -> bool:
        """Whether one kernel is cheaper than several with so many bytes between them."""


def no_evidence(together: Task, apart: Sequence[Task]) -> bool | None:
    """Nothing was measured."""
    return None


def cheaper_together(price: Price, together: Task, apart: Sequence[Task], nbytes: int) -> bool:
    """The comparison by prices alone; what no sketch fits is never preferred."""
    one, several = price(together), [price(task) for task in apart]
    if one is None:
        return False
    known = [found.seconds for found in several if found is not None]
    return len(known) < len(several) or one.seconds < sum(known) + price.between(nbytes)
