"""When enough has been measured, and what is faster than what."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

Clock = Callable[[int], float]
"""Runs a kernel that many times in a row and gives the seconds of all of them together."""

SAMPLE_SECONDS = 1e-3
"""A sample repeats short kernels until it takes about this long."""
GRAPH_SAMPLE_SECONDS = 1e-4
"""The same on a GPU, whose events know a graph of calls to half a microsecond."""
WARM_SECONDS = 1e-3
WAKING_SECONDS = 10e-3
"""How long kernels of several threads warm up.  Until the others are awake, one does the work, and
for some time more the system may let two share a processor while another one is idle."""
ENOUGH_SECONDS = 0.2
FEWEST, FEWEST_STEADY = 3, 8
STEADY = 0.02
HOPELESS = 2.0
"""A kernel this much slower than the best is not measured any more closely."""
CLEARLY = 1.1
"""A kernel whose median is surely this much above the best need not be known to the percent."""
MOST_REPEATS = 1 << 20
MARGIN = 0.99
"""A new kernel must take at most this share of the old one's time."""
NETWORK_MARGIN = 0.999
"""The same for a network in which one kernel of many is new."""
LIKELY, SURE = 1.96, 3.5
"""Standard deviations within which 95 % of normal noise lies, and all but one of 2000: looked at
after every round, and for hundreds of kernels, 95 % would be far too little."""
NETWORK_ROUNDS = 16
"""Rounds of two networks; fewer than 13 never make sure."""


class BadClock(Exception):  # noqa: N818 - an outcome of a trial
    """A time that cannot be."""


def median_interval(samples: Sequence[float], deviations: float = LIKELY) -> tuple[float, float]:
    """The 95 % confidence interval of the median, from the samples' order alone, or that of as many
    standard deviations.

    Nothing is assumed about how times are distributed: they never are normally.
    """
    ordered = sorted(samples)
    n = len(ordered)
    first = math.floor((n - deviations * math.sqrt(n)) / 2)
    if first < 0:
        return -math.inf, math.inf  # too few samples to exclude anything
    return ordered[first], ordered[n - 1 - first]


def is_steady(samples: Sequence[float]) -> bool:
    """Whether the median is known closely enough."""
    if len(samples) < FEWEST_STEADY:
        return False
    low, high = median_interval(samples)
    return high - low < STEADY * statistics.median(samples)


def is_clearly_slower(samples: Sequence[float], best: float | None) -> bool:
    """Whether noise does not explain that the median is above the best."""
    return best is not None and median_interval(samples)[0] > CLEARLY * best


def repeats_for(seconds: float, sample: float = SAMPLE_SECONDS) -> int:
    """The number of calls of that length in a sample."""
    return max(1, min(MOST_REPEATS, math.ceil(sample / seconds)))


def take_samples(
    clock: Clock, beat: Callable[[], None], best: float | None, warm: float = WARM_SECONDS,
    sample: float = SAMPLE_SECONDS,
) -> list[float]:  # fmt: skip
    """Seconds per call, sampled until they are steady, clearly slower than the best, hopeless or
    have taken long enough.

    The calls of the first `warm` seconds only warm up and tell how many calls make a sample of
    `sample` seconds.
    """
    beat()
    first = _checked(clock(1))
    if best is not None and first > HOPELESS**2 * max(best, SAMPLE_SECONDS):
        return [first]  # even with the cost of a first call it is far from the best
    repeats = _settle(clock, beat, first, warm, sample)
    samples: list[float] = []
    total = 0.0
    while True:
        beat()
        seconds = _checked(clock(repeats))
        total += seconds
        samples.append(seconds / repeats)
        hopeless = best is not None and min(samples) > HOPELESS * best
        enough = is_steady(samples) or is_clearly_slower(samples, best) or total > ENOUGH_SECONDS
        if len(samples) >= FEWEST and (hopeless or enough):
            return samples


def take_turns(
    a: Clock,
    b: Clock,
    beat: Callable[[], None],
    seconds: float,
    warm: float = WARM_SECONDS,
    enough: Callable[[Sequence[float]], bool] | None = None,
    rounds: int = FEWEST_STEADY,
) -> tuple[list[float], list[float]]:
    """Samples of two kernels in the order A B B A, so that drift of the machine hits both alike.

    There are at least so many rounds, unless the ratios of fewer are `enough`: by default, known
    to a percent.
    """
    enough = enough or is_ratio_known
    repeats_a, repeats_b = _warm_up(a, beat, warm), _warm_up(b, beat, warm)
    samples_a: list[float] = []
    samples_b: list[float] = []
    total = 0.0
    while total < seconds or len(samples_a) < 2 * rounds:
        beat()
        order = ((a, repeats_a, samples_a), (b, repeats_b, samples_b))
        for clock, repeats, samples in (*order, *reversed(order)):
            spent = _checked(clock(repeats))
            total += spent
            samples.append(spent / repeats)
        if enough(turn_ratios(samples_a, samples_b)):
            break
    return samples_a, samples_b


def turn_ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """A's time by B's, for every round of A B B A.

    Of the two times in a round the shorter one counts: other processes only make it longer.
    """
    return [min(a[n : n + 2]) / min(b[n : n + 2]) for n in range(0, min(len(a), len(b)), 2)]


def is_ratio_known(ratios: Sequence[float]) -> bool:
    low, high = median_interval(ratios)
    return high - low < STEADY / 2


def is_better(ratios: Sequence[float]) -> bool:
    """Whether A is faster than B by more than the margin, beyond reasonable doubt."""
    return median_interval(ratios)[1] < MARGIN


def is_better_network(ratios: Sequence[float]) -> bool:
    """Whether a network is faster than one that differs in few kernels."""
    return median_interval(ratios, SURE)[1] < NETWORK_MARGIN


def network_turns(
    a: Clock, b: Clock, beat: Callable[[], None], seconds: float
) -> tuple[list[float], list[float]]:
    """Samples of two networks that differ in few kernels, until one is judged."""
    return take_turns(a, b, beat, seconds, enough=is_network_judged, rounds=NETWORK_ROUNDS)


def is_network_judged(ratios: Sequence[float]) -> bool:
    """Whether it is known that a network is faster than another, or hardly can be."""
    return is_better_network(ratios) or median_interval(ratios)[0] > NETWORK_MARGIN


def _warm_up(clock: Clock, beat: Callable[[], None], warm: float) -> int:
    """The number of calls in a sample."""
    beat()
    return _settle(clock, beat, _checked(clock(1)), warm)


def _settle(
    clock: Clock, beat: Callable[[], None], first: float, warm: float,
    sample: float = SAMPLE_SECONDS,
) -> int:  # fmt: skip
    """The number of calls in a sample, after a first one, which is slower than those to come."""
    repeats, spent = repeats_for(first, sample), first
    while spent < warm:
        beat()
        seconds = _checked(clock(repeats))
        spent += seconds
        repeats = repeats_for(seconds / repeats, sample)
    return repeats


def _checked(seconds: float) -> float:
    if not (math.isfinite(seconds) and seconds > 0):
        raise BadClock(f"the clock gave {seconds} seconds")
    return seconds
