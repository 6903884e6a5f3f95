"""When sampling ends, and what counts as faster."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from whet.measure.statistics import (
    ENOUGH_SECONDS,
    GRAPH_SAMPLE_SECONDS,
    WAKING_SECONDS,
    BadClock,
    Clock,
    is_better,
    is_better_network,
    is_steady,
    median_interval,
    network_turns,
    take_samples,
    take_turns,
    turn_ratios,
)


def no_beat() -> None:
    """Nobody listens."""


def test_the_interval_of_the_median_covers_it() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        low, high = median_interval(rng.lognormal(size=41).tolist())
        hits += low <= 1.0 <= high
    assert 0.91 < hits / 400 < 0.99


def test_few_samples_exclude_nothing() -> None:
    assert median_interval([1.0, 1.0, 1.0]) == (-math.inf, math.inf)
    assert not is_steady([1.0] * 4)
    assert is_steady([1.0] * 8)


def test_sampling_ends_early_when_steady_and_late_when_not() -> None:
    assert len(take_samples(lambda n: n * 1e-4, no_beat, None)) == 8
    noisy = itertools.cycle([1.0, 3.0, 1.5, 2.5, 2.0])
    samples = take_samples(lambda n: n * 1e-4 * next(noisy), no_beat, None)
    assert len(samples) > 50


def test_samples_take_as_long_as_is_asked_for() -> None:
    calls: list[int] = []

    def clock(n: int) -> float:
        calls.append(n)
        return 5e-5 * n

    take_samples(clock, no_beat, None)
    assert calls[-1] == 20
    take_samples(clock, no_beat, None, sample=GRAPH_SAMPLE_SECONDS)
    assert calls[-1] == 2


def test_slow_kernels_are_sampled_a_few_times() -> None:
    calls: list[int] = []

    def clock(n: int) -> float:
        calls.append(n)
        return 2 * ENOUGH_SECONDS * n

    assert len(take_samples(clock, no_beat, None)) == 3
    assert set(calls) == {1}


def test_hopeless_kernels_are_given_up() -> None:
    assert len(take_samples(lambda n: n * 1e-2, no_beat, 1e-3)) == 1
    assert len(take_samples(lambda n: n * 2.5e-3, no_beat, 1e-3)) == 3
    assert len(take_samples(lambda n: n * 1.05e-3, no_beat, 1e-3)) == 8


@pytest.mark.parametrize("seconds", [2e-5, 1e-3])
def test_threads_that_wake_up_late_are_waited_for(seconds: float) -> None:
    passed = 0.0

    def clock(n: int) -> float:
        nonlocal passed
        alone = passed < WAKING_SECONDS
        passed += n * seconds * (2 if alone else 1)
        return n * seconds * (2 if alone else 1)

    samples = take_samples(clock, no_beat, 0.95 * seconds, WAKING_SECONDS)
    assert samples == pytest.approx([seconds] * 8)


def test_kernels_that_are_clearly_slower_are_not_known_to_the_percent() -> None:
    noisy = itertools.cycle([1.4, 2.0, 1.2, 1.8, 1.5])
    assert len(take_samples(lambda n: n * 1e-3 * next(noisy), no_beat, 1e-3)) == 4
    near = itertools.cycle([1.0, 1.3, 1.05, 1.2, 1.1])
    assert len(take_samples(lambda n: n * 1e-3 * next(near), no_beat, 1e-3)) > 50


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_impossible_times_are_refused(bad: float) -> None:
    with pytest.raises(BadClock):
        take_samples(lambda n: bad, no_beat, None)


def test_turns_alternate_and_drift_cancels() -> None:
    """The machine becomes slower all the time; A is not to look slower for coming second."""
    order: list[str] = []
    slowness = itertools.count(100)

    def clock(name: str, seconds: float) -> float:
        order.append(name)
        return seconds * next(slowness) / 100

    a, b = take_turns(
        lambda n: clock("a", 1e-2), lambda n: clock("b", 1.1e-2), no_beat, 1.0
    )  # fmt: skip
    assert "".join(order[2:]).startswith("abbaabba")
    assert is_better(turn_ratios(a, b))
    assert not is_better(turn_ratios(b, a))


def test_noise_makes_no_winner() -> None:
    rng = np.random.default_rng(1)
    wins = 0
    for _ in range(200):
        a, b = (rng.lognormal(sigma=0.1, size=40).tolist() for _ in range(2))
        wins += is_better(turn_ratios(a, b))
    assert wins <= 10
    a, b = (rng.lognormal(m, 0.05, size=60).tolist() for m in (0.0, 0.1))
    assert is_better(turn_ratios(a, b))


def judged(gain: float, seed: int, seconds: float = 0.15) -> tuple[bool, int]:
    """Whether a network that is so much faster wins, and in how many rounds, of half a millisecond
    and with 0.3 % of noise."""
    rng = np.random.default_rng(seed)

    def clock(milliseconds: float) -> Clock:
        return lambda n: float(n * milliseconds * 1e-3 * rng.normal(1.0, 0.003))

    clocks = clock(0.5 * (1 - gain)), clock(0.5)
    a, b = network_turns(*clocks, no_beat, seconds)
    return is_better_network(turn_ratios(a, b)), len(a) // 2


def test_a_kernel_that_makes_a_network_a_little_faster_is_seen() -> None:
    found = [judged(0.005, seed) for seed in range(100)]
    assert sum(won for won, _ in found) > 90
    assert not is_better([0.995] * 40)  # as a kernel by itself it would not do


def test_noise_makes_no_network_faster() -> None:
    assert not any(judged(0.0, seed)[0] for seed in range(1000))


def test_a_network_that_is_slower_is_soon_judged() -> None:
    found = [judged(-0.01, seed) for seed in range(100)]
    assert not any(won for won, _ in found)
    assert np.median([rounds for _, rounds in found]) <= 6


def test_a_slow_network_has_as_many_rounds_as_a_win_takes() -> None:
    assert judged(0.01, 0, seconds=1e-6) == (True, 13)
