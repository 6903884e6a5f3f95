"""When one trial is faster than another."""

from __future__ import annotations

import math

import numpy as np

from whet.tune.timing import FAILED, Timing, is_faster


def test_a_timing_is_its_median() -> None:
    assert Timing((3.0, 1.0, 2.0)) == 2.0
    assert Timing((3.0, 1.0, 2.0)).samples == (3.0, 1.0, 2.0)
    assert math.isinf(Timing())
    assert not FAILED.ok


def test_clear_differences_need_few_samples() -> None:
    fast, slow = Timing((1.0, 1.1, 1.2)), Timing((1.5, 1.6, 1.7))
    assert is_faster(fast, slow)
    assert not is_faster(slow, fast)


def test_overlapping_samples_prove_nothing() -> None:
    a, b = Timing((1.0, 1.3, 1.1, 1.4)), Timing((1.05, 1.25, 1.35, 1.15))
    assert not is_faster(a, b)
    assert not is_faster(b, a)


def test_equal_samples_are_not_faster() -> None:
    same = Timing((1.0,) * 5)
    assert not is_faster(same, Timing((1.0,) * 5))


def test_anything_is_faster_than_failing() -> None:
    assert is_faster(Timing((9.0,)), FAILED)
    assert not is_faster(FAILED, Timing((9.0,)))


def test_trials_that_were_cut_short_were_slow() -> None:
    assert is_faster(Timing((1.0, 1.0, 1.0)), Timing((2.1,)))
    assert not is_faster(Timing((1.0, 1.0, 1.0)), Timing((1.2,)))


def test_noise_seldom_passes_for_a_difference() -> None:
    rng = np.random.default_rng(0)
    wrong = sum(
        is_faster(Timing(rng.lognormal(size=8)), Timing(rng.lognormal(size=8))) for _ in range(1000)
    )
    assert 10 < wrong < 70


def test_small_differences_show_with_many_samples() -> None:
    rng = np.random.default_rng(0)
    a = Timing(1.00 + 0.02 * rng.random(60))
    b = Timing(1.02 + 0.02 * rng.random(60))
    assert is_faster(a, b)
