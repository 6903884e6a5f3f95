"""Searches for a GPU with times that are made up: which rows are tried, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tests.tune.landscapes import bowl, grid, search, space_of
from tests.tune.test_tuner import small_graph
from whet.core.gpu import PRESETS, GpuTarget
from whet.core.outcomes import Outcome
from whet.db.store import Database
from whet.joint.tuning import weighted_tasks
from whet.measure.results import Candidate, Comparison, Measured
from whet.tasks.task import Task
from whet.tune.policies import COMPILED, POLICIES
from whet.tune.policies.ranked import Ranked
from whet.tune.schedule import Schedules
from whet.tune.space import Space, Table, make_space
from whet.tune.tuner import Budget, Tuner

TARGET = PRESETS["cuda-sm_90a"]
RNG = np.random.default_rng(0)


class MadeUp:
    """Times by formula: small numbers are fast."""

    def __init__(self) -> None:
        self.asked: list[Candidate] = []

    def seconds(self, c: Candidate) -> float:
        return 1e-6 * (1 + sum(c.holes.values()))

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: GpuTarget
    ) -> Iterator[Measured]:
        for c in candidates:
            self.asked.append(c)
            yield Measured(c, Outcome.OK, (self.seconds(c),) * 9, checked=True)

    def compare(
        self, task: Task, a: Candidate, b: Candidate, threads: int, target: GpuTarget
    ) -> Comparison:
        times = [(self.seconds(c),) * 9 for c in (a, b)]
        return Comparison(True, 0.5, 0.4, 0.6, *times)

    def close(self) -> None: ...


def gpu_tuner(database: Database, runner: MadeUp) -> Tuner:
    tasks = weighted_tasks([small_graph()], TARGET, 1, "real")
    return Tuner(tasks, TARGET, 1, database, runner)


def space_here() -> Space:
    (weighted,) = weighted_tasks([small_graph()], TARGET, 1, "real")
    return make_space(weighted.task, TARGET, 1)


def test_the_best_eight_by_price_are_tried_first(tmp_path: Path) -> None:
    runner = MadeUp()
    with Database(tmp_path / "r.db") as database:
        gpu_tuner(database, runner).run(Budget(trials=COMPILED))
    space = space_here()
    assert space.size > 100
    rows = [space.find(c) for c in runner.asked[:COMPILED]]
    prices = [space.cost(r) for r in rows if r is not None]
    assert len(set(rows)) == len(prices) == COMPILED
    assert prices == sorted(prices)
    every = np.sort(np.concatenate([t.costs for t in space.tables]))
    for price in prices:  # all that is cheaper was tried, or differs by a thousandth from what was
        cheaper = every[every < price]
        assert all(np.min(np.abs(np.array(prices) / c - 1)) < 1.1e-3 for c in cheaper)


def test_neighbours_of_the_best_follow(tmp_path: Path) -> None:
    runner = MadeUp()
    with Database(tmp_path / "r.db") as database:
        tuner = gpu_tuner(database, runner)
        tuner.run(Budget(trials=64))
        (report,) = tuner.reports()
    first, later = runner.asked[:COMPILED], runner.asked[COMPILED:]
    assert report.best_seconds < min(runner.seconds(c) for c in first)
    best = min(first, key=runner.seconds)
    changed = [sum(best.holes[h] != c.holes.get(h) for h in best.holes) for c in later[:COMPILED]]
    assert 1 in changed


def test_a_killed_search_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = MadeUp()
    with Database(tmp_path / "whole.db") as database:
        gpu_tuner(database, whole).run(Budget(trials=24))
    parts = MadeUp()
    for _ in range(3):
        with Database(tmp_path / "parts.db") as database:
            tuner = gpu_tuner(database, parts)
            tuner.searches[0].round(8)  # and nobody comes to confirm anything
    assert len(parts.asked) > COMPILED
    assert parts.asked == whole.asked[: len(parts.asked)]


def test_records_of_a_gpu_are_used(tmp_path: Path) -> None:
    runner = MadeUp()
    with Database(tmp_path / "r.db") as database:
        tuner = gpu_tuner(database, runner)
        tuner.run(Budget(trials=40))
        (report,) = tuner.reports()
        chosen = Schedules(TARGET, 1, "real", database).chosen(tuner.searches[0].task)
    assert chosen.origin == "record"
    best = min(runner.asked, key=runner.seconds)
    assert chosen.candidate == best
    assert str(best) == report.schedule


def test_rows_that_the_model_cannot_tell_apart_come_last() -> None:
    costs = np.array([500.0, 500.1, 600.0, 600.1, 700.0, 500.2])
    space = space_of(Table("t", {"a": np.arange(6)}, costs))
    assert Ranked().propose(space, {}, 3, RNG) == [(0, 0), (0, 2), (0, 4)]
    assert Ranked().propose(space, {}, 9, RNG) == [(0, n) for n in (0, 2, 4, 1, 5, 3)]


def test_the_usual_policy_of_other_machines_is_another() -> None:
    holes = grid(a=32, b=32)
    space = space_of(Table("bowl", holes, 1e9 * bowl({"a": 12, "b": 12})(holes)))
    found = [
        list(search(POLICIES[name](), space, bowl({"a": 20, "b": 9}), COMPILED, 0))
        for name in ("default", "ranked")
    ]
    assert found[0] != found[1]
