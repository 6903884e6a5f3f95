"""From the answers of processes to the results of trials, for all kinds of machines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whet.core.errors import WhetError
from whet.core.outcomes import Outcome
from whet.measure.builder import Built
from whet.measure.kernel_process import Loadable, Ran
from whet.measure.results import Candidate, Comparison, Measured
from whet.measure.statistics import is_better, median_interval, turn_ratios

LEAST_LIMIT_SECONDS = 0.2

Place = tuple[str, ...]
"""A task on a machine, by keys."""


@dataclass(eq=False)
class BestTimes:
    """The shortest time of every task so far, and how long another kernel of it may take."""

    first: float
    """The limit while nothing is known about a task."""
    by_best: float
    """The limit by the best time."""
    seconds: dict[Place, float] = field(default_factory=dict)

    def limit(self, place: Place) -> float:
        best = self.seconds.get(place)
        return self.first if best is None else max(LEAST_LIMIT_SECONDS, self.by_best * best)

    def note(self, place: Place, samples: Sequence[float]) -> None:
        best = self.seconds.get(place, math.inf)
        self.seconds[place] = min(best, statistics.median(samples))


def trial_end(
    candidate: Candidate,
    built: Built,
    load: Callable[[bytes], Loadable],
    run: Callable[[Loadable], Ran],
) -> Measured:
    """The end of a candidate that was lowered: not built, not to be loaded, or run."""
    if built.data is None:
        return Measured(candidate, built.outcome, (), built.message, built.ms)
    size = len(built.data)
    try:
        loadable = load(built.data)
    except (WhetError, MemoryError, ValueError) as error:  # its constants cannot be packed
        return Measured(candidate, Outcome.RUN_ERROR, (), first_line(error), built.ms, size)
    ran = run(loadable)
    ok = ran.outcome is Outcome.OK
    samples = ran.samples[0] if ok else ()
    return Measured(candidate, ran.outcome, samples, ran.message, built.ms, size, checked=ok)


def comparison_of(ran: Ran, better: Callable[[Sequence[float]], bool] = is_better) -> Comparison:
    """The result of two that took turns, the candidate first."""
    if ran.outcome is not Outcome.OK:
        return undecided(ran.outcome, ran.message)
    a, b = ran.samples
    ratios = turn_ratios(a, b)
    return Comparison(better(ratios), statistics.median(ratios), *median_interval(ratios), a, b)


def undecided(outcome: Outcome, message: str) -> Comparison:
    return Comparison(False, math.nan, math.nan, math.nan, outcome=outcome, message=message)


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
