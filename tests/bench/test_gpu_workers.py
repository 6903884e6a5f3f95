"""Jobs of benchmarks that prepare side by side."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from harness.gpu_workers import measured_alone


def slept(job: str) -> Callable[[], tuple[str, float, float]]:
    """A job that says when it was prepared, and when it was measured; "bad" fails."""
    if job == "bad":
        raise ValueError(job)
    prepared = time.time()

    def measure() -> tuple[str, float, float]:
        if job == "worse":
            raise ValueError(job)
        return job, prepared, time.time()

    return measure


@pytest.mark.parametrize("processes", [1, 3])
def test_nothing_is_measured_before_all_is_prepared(processes: int) -> None:
    found = [result for _, result in measured_alone(slept, ["a", "b", "c"], processes)]
    assert [name for name, _, _ in found] == ["a", "b", "c"]
    measured = [end for _, _, end in found]
    assert max(prepared for _, prepared, _ in found) <= min(measured)
    assert measured == sorted(measured)


def test_jobs_that_fail_leave_the_others_alone() -> None:
    found = dict(measured_alone(slept, ["a", "bad", "worse", "b"], 2))
    assert (found["bad"], found["worse"]) == (None, None)
    assert (found["a"][0], found["b"][0]) == ("a", "b")
