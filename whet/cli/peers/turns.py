"""Timing several runtimes fairly: they take turns, so that noise hits all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whet.cli.peers.process import Worker

ROUNDS = 10
CONFIDENCE = 0.95
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of one runtime in seconds: all calls, and the median of each round."""

    median: float
    p90: float
    p99: float
    low: float
    high: float
    """Bounds of the confidence interval of the median."""
    calls: int
    rounds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """The time of another runtime by that of whet: median over rounds, with its interval."""

    value: float
    low: float
    high: float


def take_turns(
    workers: Mapping[str, Worker],
    seconds: float,
    rounds: int = ROUNDS,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Timing]:
    """Times every runtime for about `seconds`, in rounds, with the order rotated each round."""
    names = list(workers)
    turns: dict[str, list[list[float]]] = {name: [] for name in names}
    for n in range(rounds):
        shift = n % len(names)
        for name in names[shift:] + names[:shift]:
            turns[name].append(workers[name].time(seconds / rounds))
            progress()
    return {name: summarize_turns(turns[name]) for name in names}


def summarize_turns(turns: Sequence[Sequence[float]]) -> Timing:
    """The statistics of the calls of several turns."""
    calls = np.concatenate([np.asarray(t) for t in turns])
    rounds = np.array([np.median(t) for t in turns])
    low, high = _interval(rounds)
    return Timing(
        median=float(np.median(calls)),
        p90=float(np.quantile(calls, 0.9)),
        p99=float(np.quantile(calls, 0.99)),
        low=low,
        high=high,
        calls=len(calls),
        rounds=tuple(rounds.tolist()),
    )


def ratio(other: Timing, own: Timing) -> Ratio:
    """The time of `other` by that of the first; each round is compared with itself."""
    per_round = np.array(other.rounds) / np.array(own.rounds)
    low, high = _interval(per_round)
    return Ratio(float(np.median(per_round)), low, high)


def _interval(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """Bootstrap confidence interval of the median (seeded: equal data, equal interval)."""
    drawn = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values)))
    edge = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(drawn, axis=1), (edge, 1 - edge))
    return float(low), float(high)
