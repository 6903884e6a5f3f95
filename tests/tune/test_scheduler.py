"""The task scheduler: who gets the next trials."""

from __future__ import annotations

import numpy as np

from whet.tune.scheduler import Progress, next_task

RNG = np.random.default_rng(0)


def progress(weight: float, *best: float, work: float = 0.0, kind: str = "k") -> Progress:
    return Progress(weight, work, kind, best=list(best))


def chosen(*tasks: Progress) -> int | None:
    return next_task(tasks, RNG, epsilon=0.0)


def test_every_task_gets_a_first_round() -> None:
    assert chosen(progress(100, 1e-3), progress(1), progress(1)) == 1


def test_the_heavier_task_goes_first() -> None:
    assert chosen(progress(1, 1e-3), progress(10, 1e-3)) == 1


def test_the_task_that_still_improves_goes_first() -> None:
    stuck = progress(1, *[1e-3] * 6)
    improving = progress(1, 4e-3, 3e-3, 2.5e-3, 2e-3, 1.5e-3, 1e-3)
    assert chosen(stuck, improving) == 1


def test_a_task_far_behind_its_kind_goes_first() -> None:
    """Both take the same time; one reaches a tenth of the rate of a third of its kind."""
    near = progress(1, 1e-3, work=1e6)
    far = progress(1, 1e-3, work=1e5)
    fast = progress(1e-9, 1e-3, work=1e6)
    assert chosen(near, far, fast) == 1


def test_exhausted_tasks_get_nothing() -> None:
    done = progress(100, 1e-3)
    done.exhausted = True
    assert chosen(done, progress(1, 1e-3)) == 1
    assert chosen(done) is None
