"""Which of two graphs runs faster: disturbed calls decide nothing."""

from __future__ import annotations

import numpy as np

from whet.joint.together import _lower_bound


def calls(seconds: float, disturbed: int, seed: int) -> np.ndarray:
    """The times of 25 calls, some of which took up to four times as long."""
    rng = np.random.default_rng(seed)
    times = seconds * rng.normal(1.0, 0.01, 25)
    times[:disturbed] *= rng.uniform(1.5, 4.0, disturbed)
    return rng.permutation(times)


def test_a_gain_is_seen_through_disturbances() -> None:
    assert all(_lower_bound(calls(1.07, 4, s), calls(1.0, 4, s + 100)) > 1.03 for s in range(20))


def test_no_gain_is_seen_where_there_is_none() -> None:
    bounds = [_lower_bound(calls(1.0, 4, s), calls(1.0, 4, s + 100)) for s in range(200)]
    assert np.mean(np.array(bounds) > 1.0) < 0.06
    assert _lower_bound(calls(1.0, 0, 0), calls(1.07, 0, 1)) < 0.95
