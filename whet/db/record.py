"""The records of trials: of a kernel alone, and of one inside a network."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from whet.core.outcomes import Outcome
from whet.core.target import Target
from whet.core.version import VERSION


@dataclass(frozen=True, slots=True)
class Workload:
    """A task as the database knows it."""

    key: str
    class_key: str
    """Equal for tasks that differ in their extents only."""
    text: str


@dataclass(frozen=True)
class Record:
    """One measurement of one candidate: everything that later models may want to learn from."""

    workload: Workload
    target: Target
    threads: int
    sketch: str
    holes: Mapping[str, int]
    outcome: Outcome
    samples: tuple[float, ...] = ()
    """Seconds per call, all of them, in the order in which they were taken."""
    trace: str = ""
    """The steps of the schedule as JSON; empty where the sketch's name says it all."""
    message: str = ""
    build_ms: float = 0.0
    code_bytes: int = 0
    checked: bool = False
    """Whether the results were compared with the expected ones, and agreed."""
    seed: int = 0
    version: str = VERSION
    at: float = 0.0
    """When it was measured, in seconds since 1970."""
    estimate: float | None = None
    """Seconds that the analytic model expected, where it was asked."""
    id: int | None = None
    """The number of the candidate in the database that it comes from."""

    @cached_property
    def seconds(self) -> float | None:
        """The median, for a trial that ended well."""
        return statistics.median(self.samples) if self.outcome is Outcome.OK else None


@dataclass(frozen=True)
class NetworkTrial:
    """One comparison of a network with itself, in which one workload has another candidate."""

    network: str
    """The key of the plan."""
    beside: str
    """A digest of the candidates that all workloads of the network had before."""
    workload: Workload
    target: Target
    threads: int
    sketch: str
    holes: Mapping[str, int]
    outcome: Outcome
    ratio: float | None = None
    """The network's time by that before, if it ran."""
    kept: bool = False
    """Whether the candidate took the place of the one before, for good."""
    at: float = 0.0


def holes_text(holes: Mapping[str, int]) -> str:
    """Equal for equal holes, whatever their order."""
    return json.dumps(dict(sorted(holes.items())), separators=(",", ":"))
