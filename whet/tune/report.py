"""The progress of a search, task by task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """The outcome of tuning for one task."""

    name: str
    count: int
    """How often the models run it, all together."""
    trials: int
    default_seconds: float
    best_seconds: float
    outcomes: Mapping[str, int]
    operations: float = 0.0
    roofline_seconds: float = 0.0
    """What no kernel of the same algorithm can beat."""
    schedule: str = ""
    """The best candidate so far."""

    @property
    def known(self) -> bool:
        return math.isfinite(self.best_seconds)

    @property
    def total(self) -> float:
        """Seconds that the task takes in all models."""
        return self.count * self.best_seconds if self.known else 0.0

    @property
    def gflops(self) -> float:
        return self.operations / self.best_seconds * 1e-9 if self.known else math.nan

    @property
    def gain(self) -> float:
        """The speed by that of the default."""
        finite = self.known and math.isfinite(self.default_seconds)
        return self.default_seconds / self.best_seconds if finite else math.nan

    @property
    def of_roofline(self) -> float:
        """The share of the roofline's speed; more than 1 with an algorithm that does less."""
        return self.roofline_seconds / self.best_seconds if self.known else math.nan

    @property
    def failed(self) -> int:
        return sum(n for outcome, n in self.outcomes.items() if outcome != "ok")


@dataclass(frozen=True)
class Refining:
    """The state of the search inside a network."""

    network: str
    """What it is called among several."""
    tried: int = 0
    """Comparisons so far."""
    changed: int = 0
    """Tasks that have another kernel than the best one by itself."""
    before: float = math.nan
    """Seconds of the network with the kernels that are best by themselves."""
    seconds: float = math.nan
    """The same with those that were chosen."""
    ended: bool = False
    problem: str = ""
    """Why the network could not be timed."""

    @property
    def gain(self) -> float:
        return self.before / self.seconds


@dataclass(frozen=True)
class Status:
    """The state of the search as a whole."""

    trials: int
    elapsed: float
    seconds_left: float
    """Infinity if only trials are limited."""
    trials_left: int | None = None
    objective: float = math.nan
    refining: Refining | None = None
    """Where the search is inside a network."""

    @property
    def eta(self) -> float:
        """Seconds until the search is over; infinity if nobody can know."""
        if self.trials_left is None or not self.trials:
            return self.seconds_left
        return min(self.seconds_left, self.trials_left * self.elapsed / self.trials)


Watch = Callable[[Sequence[Report], Status], None]
"""Called after every round with the state of all tasks."""


def shares(reports: Sequence[Report]) -> list[float]:
    """Each task's part of the time of all."""
    total = sum(r.total for r in reports)
    return [r.total / total if total else 0.0 for r in reports]
