"""The results of measuring."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from whet.core.outcomes import Outcome
from whet.db.record import holes_text


@dataclass(frozen=True)
class Candidate:
    """A point of a sketch's space, or a trace (as JSON) with integers for its holes."""

    sketch: str
    holes: Mapping[str, int]
    trace: str = ""

    @property
    def key(self) -> str:
        """Equal for equal candidates, whatever the order of their holes."""
        return f"{self.sketch} {self.trace}{holes_text(self.holes)}"

    def __str__(self) -> str:
        return " ".join([self.sketch, *(f"{name}={n}" for name, n in self.holes.items())])


@dataclass(frozen=True)
class Measured:
    """The end of a candidate's trial."""

    candidate: Candidate
    outcome: Outcome
    samples: tuple[float, ...] = ()
    """Seconds per call, in the order in which they were taken."""
    message: str = ""
    """Why it did not end well."""
    build_ms: float = 0.0
    code_bytes: int = 0
    checked: bool = False
    """Whether the results were compared with the expected ones, and agreed."""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def seconds(self) -> float:
        """The median; infinity for a trial that did not end well."""
        return statistics.median(self.samples) if self.ok else math.inf


@dataclass(frozen=True)
class Comparison:
    """Two kernels that took turns; `ratio` is the candidate's time by the incumbent's."""

    better: bool
    """True when the candidate is faster, by more than noise explains."""
    ratio: float
    low: float
    high: float
    """The 95 % confidence interval of the ratio."""
    candidate: tuple[float, ...] = ()
    incumbent: tuple[float, ...] = ()
    outcome: Outcome = Outcome.OK
    message: str = ""
