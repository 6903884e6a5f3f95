"""The task scheduler: who gets the next trials, under every objective."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from whet.core.errors import WhetError
from whet.tune.objectives import (
    EarlyStopping,
    Objective,
    Speedup,
    Standing,
    Targets,
    Total,
    make_objective,
)
from whet.tune.scheduler import Progress, Scheduler

RNG = np.random.default_rng(0)


def progress(*best: float, work: float = 0.0, kind: str = "k") -> Progress:
    made = Progress(work, kind)
    for seconds in best:
        made.add_round(8, seconds)
    return made


def chosen(
    *tasks: Progress, weights: list[list[float]] | None = None, objective: Objective | None = None
) -> int | None:
    matrix = np.array(weights or [[1.0] * len(tasks)])
    return Scheduler(tasks, matrix, objective or Total(), epsilon=0.0).next(RNG)


# -------------------------------------------------------------------------------- the gradient
def test_every_task_gets_a_first_round() -> None:
    assert chosen(progress(1e-3), progress(), progress(), weights=[[100, 1, 1]]) == 1


def test_first_rounds_begin_with_what_should_take_the_most_time() -> None:
    light, heavy = Progress(0.0, "k", estimate=2e-3), Progress(0.0, "k", estimate=1e-3)
    assert chosen(light, heavy, weights=[[1, 1]]) == 0
    assert chosen(light, heavy, weights=[[1, 3]]) == 1


def test_the_heavier_task_goes_first() -> None:
    assert chosen(progress(1e-3), progress(1e-3), weights=[[1, 10]]) == 1


def test_the_task_that_still_improves_goes_first() -> None:
    stuck = progress(*[1e-3] * 6)
    improving = progress(4e-3, 3e-3, 2.5e-3, 2e-3, 1.5e-3, 1e-3)
    assert chosen(stuck, improving) == 1


def test_the_window_is_as_far_as_one_looks_back() -> None:
    """One fell long ago, the other lately; both started and ended alike."""
    early = progress(4e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3)
    late = progress(4e-3, 4e-3, 4e-3, 4e-3, 1e-3, 1e-3)
    assert chosen(early, late) == 1


def similar_tasks(rounds: int) -> list[Progress]:
    """Two tasks of one class and of about the same work, the second ten times slower, and one
    of another class that is as slow as the second."""
    fast = progress(*[1e-4] * 2, work=1.00e6, kind="a")
    slow = progress(*[1e-3] * rounds, work=1.01e6, kind="a")
    other = progress(*[1e-3] * rounds, work=1.01e6, kind="b")
    assert fast.group == slow.group != other.group
    return [fast, slow, other]


@pytest.mark.parametrize("rounds", [2, 3, 6])
def test_a_fast_neighbour_promises_much_in_every_round(rounds: int) -> None:
    """All but twice what the task would take at its neighbour's rate; the other's promise fades."""
    tasks = similar_tasks(rounds)
    scheduler = Scheduler(tasks, np.ones((1, 3)), Total(), epsilon=0.0)
    assert scheduler._gain(1) == pytest.approx(0.8 * (1e-3 - 2 * 1.01e-4))
    assert scheduler._gain(2) == pytest.approx(0.8 * 1e-3 / rounds)


def test_tasks_that_keep_up_with_their_neighbours_are_judged_alone() -> None:
    tasks = [progress(*[1e-3] * 4, work=w, kind="a") for w in (1.00e6, 1.01e6)]
    scheduler = Scheduler(tasks, np.ones((1, 2)), Total(), epsilon=0.0)
    assert [scheduler._gain(n) for n in (0, 1)] == pytest.approx([0.8 * 1e-3 / 4] * 2)


def test_work_of_another_size_is_another_group() -> None:
    assert progress(1e-3, work=1e6).group != progress(1e-3, work=2e6).group


def test_a_member_that_lags_leaves_its_group() -> None:
    tasks = similar_tasks(12)
    scheduler = Scheduler(tasks, np.ones((1, 3)), Total(), epsilon=0.0)
    assert scheduler.next(RNG) is not None
    assert [t.alone for t in tasks] == [False, True, False]
    assert scheduler._gain(1) == pytest.approx(scheduler._gain(2))


def test_exhausted_tasks_get_nothing() -> None:
    done = progress(1e-3)
    done.exhausted = True
    assert chosen(done, progress(1e-3), weights=[[100, 1]]) == 1
    assert chosen(done) is None


# ------------------------------------------------------------------------------ the objectives
def allocation(objective: Objective, weights: list[list[float]], rounds: int = 60) -> Counter[int]:
    """Rounds that every task got; task n can fall from 1 ms to its floor, slower and slower."""
    floors = np.array([1e-4, 5e-4])
    tasks = [Progress(0.0, str(n)) for n in range(2)]
    scheduler = Scheduler(tasks, np.array(weights), objective, epsilon=0.0)
    given: Counter[int] = Counter()
    for _ in range(rounds):
        n = scheduler.next(RNG)
        if n is None:
            break
        given[n] += 1
        done = len(tasks[n].best) + 1
        tasks[n].add_round(8, float(floors[n] + (1e-3 - floors[n]) / min(done, 20)))
    return given


TWO_MODELS = [[1.0, 0.0], [0.0, 1.0]]


def test_total_goes_where_time_is() -> None:
    given = allocation(Total(), [[1.0, 0.0], [0.0, 10.0]])
    assert given[1] > 2 * given[0]


def test_targets_leave_alone_what_is_fast_enough() -> None:
    plain = allocation(Total(), TWO_MODELS)
    given = allocation(Targets((1e-5, 9e-4)), TWO_MODELS)
    assert given[1] < plain[1]
    assert given[0] > plain[0]


def test_targets_end_the_search_when_all_are_met() -> None:
    given = allocation(Targets((6e-4, 9e-4)), TWO_MODELS)
    assert sum(given.values()) < 20


def test_speedup_counts_ratios_and_not_seconds() -> None:
    """The second model is a hundred times as long; the sum would give it nearly everything."""
    weights = [[1.0, 0.0], [0.0, 100.0]]
    plain = allocation(Total(), weights)
    given = allocation(Speedup((1.0, 1.0)), weights)
    assert plain[0] <= 3
    assert given[0] > 10


def test_early_stopping_gives_up_on_what_does_not_improve() -> None:
    plain = allocation(Total(), TWO_MODELS, rounds=100)
    given = allocation(EarlyStopping(24), TWO_MODELS, rounds=100)
    assert sum(plain.values()) == 100
    assert sum(given.values()) < 60  # 20 rounds until nothing changes any more, then 3 in vain


@pytest.mark.parametrize(
    "objective", [Total(), Targets((2.5e-3, 1e-9)), Speedup((1e-3, 2e-3)), EarlyStopping(8)]
)
def test_slopes_are_derivatives(objective: Objective) -> None:
    weights = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]])
    seconds = np.array([1e-3, 2e-4, 4e-5])
    idle = np.array([0, 0, 0])
    step = 1e-9
    slopes = objective.slopes(Standing(weights, seconds, idle))
    for n in range(3):
        changed = [Standing(weights, seconds + s * np.eye(3)[n], idle) for s in (step, -step)]
        found = (objective.value(changed[0]) - objective.value(changed[1])) / (2 * step)
        assert slopes[n] == pytest.approx(found, rel=1e-4, abs=1e-9)


def test_objectives_by_name() -> None:
    assert make_objective("targets", 2, targets=[0.01]) == Targets((0.01, 0.01))
    assert make_objective("early-stopping", 1, patience=9) == EarlyStopping(9)
    for wrong in (
        lambda: make_objective("fast", 1),
        lambda: make_objective("targets", 2),
        lambda: make_objective("targets", 2, targets=[1.0, 2.0, 3.0]),
        lambda: make_objective("targets", 1, targets=[-1.0]),
        lambda: make_objective("total", 1, targets=[1.0]),
    ):
        with pytest.raises(WhetError, match="WH1002"):
            wrong()
