"""The tuner on a real task, with times that are made up and with real trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import whet
from tests.targets import HOST
from whet.core.cpu import PRESETS, CpuTarget
from whet.core.dtypes import f32
from whet.core.outcomes import Outcome
from whet.core.types import TensorType
from whet.db.store import Database
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.joint.tuning import tune_graphs, weighted_tasks
from whet.measure.results import Candidate, Comparison, Measured
from whet.ops.activation import Relu
from whet.ops.matmul import MatMul
from whet.tasks.task import Task
from whet.tune.schedule import Schedules
from whet.tune.tuner import Budget, Tuner

TARGET = PRESETS["x86-64-v3"]


def small_graph() -> Graph:
    b = GraphBuilder()
    x = b.input("x", TensorType((24, 40), f32))
    w = b.constant(np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32))
    y = b.one(Relu(), b.one(MatMul(), x, w))
    return Graph((x,), (y,), ("y",))


class MadeUp:
    """Times by formula: smaller tiles are faster, two rows fail."""

    def __init__(self, better: bool = True) -> None:
        self.better, self.asked = better, 0

    def seconds(self, c: Candidate) -> float:
        return 1e-6 * (1 + sum(c.holes.values()))

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: CpuTarget
    ) -> Iterator[Measured]:
        for c in candidates:
            self.asked += 1
            if c.holes.get("mr") == 2:
                yield Measured(c, Outcome.WRONG_ANSWER, message="made up")
            else:
                yield Measured(c, Outcome.OK, (self.seconds(c),) * 3, checked=True)

    def compare(self, task: Task, a: Candidate, b: Candidate, threads: int, target: CpuTarget,
                seconds: float = 0.5) -> Comparison:  # fmt: skip
        times = [(self.seconds(c),) * 3 for c in (a, b)]
        return Comparison(self.better, 0.5, 0.4, 0.6, *times)


def make_tuner(database: Database, measurer: MadeUp, seed: int = 0) -> Tuner:
    tasks = weighted_tasks([small_graph()], TARGET, 1, "real")
    return Tuner(tasks, TARGET, 1, database, measurer, seed=seed)  # type: ignore[arg-type]


def test_records_are_kept_and_used(tmp_path: Path) -> None:
    with Database(tmp_path / "r.db") as database:
        measurer = MadeUp()
        tuner = make_tuner(database, measurer)
        tuner.run(Budget(trials=64))
        (report,) = tuner.reports()
        assert report.trials == 64
        assert report.best_seconds < report.default_seconds
        assert 64 < measurer.asked == sum(report.outcomes.values())  # some once more at the end
        task = tuner.searches[0].task
        best = database.best(task.key, TARGET, 1)
        assert best is not None
        assert best.seconds == pytest.approx(report.best_seconds)
        kernel = Schedules(TARGET, 1, database=database)(task, "k")
        assert kernel.program.name == "k"


def test_a_winner_that_is_not_faster_side_by_side_is_not_kept(tmp_path: Path) -> None:
    with Database(tmp_path / "r.db") as database:
        tuner = make_tuner(database, MadeUp(better=False))
        tuner.run(Budget(trials=32))
        search = tuner.searches[0]
        best = database.best(search.task.key, TARGET, 1)
        assert best is not None
        assert dict(best.holes) == dict(search.default.holes)


class UnluckyDefault(MadeUp):
    """Everything is equally fast, but the first trial of all is disturbed."""

    def seconds(self, c: Candidate) -> float:
        return 1e-6 if self.asked > 1 else 1e-3


def test_a_default_that_was_unlucky_once_is_measured_again(tmp_path: Path) -> None:
    with Database(tmp_path / "r.db") as database:
        tuner = make_tuner(database, UnluckyDefault(better=False))
        tuner.run(Budget(trials=16))
        search = tuner.searches[0]
        best = database.best(search.task.key, TARGET, 1)
        assert best is not None
        assert (dict(best.holes), best.seconds) == (dict(search.default.holes), 1e-6)
        (report,) = tuner.reports()
        assert report.gain == 1.0


def test_what_is_reported_at_the_end_is_what_was_confirmed(tmp_path: Path) -> None:
    with Database(tmp_path / "r.db") as database:
        tuner = make_tuner(database, MadeUp(better=False))
        tuner.run(Budget(trials=32))
        (report,) = tuner.reports()
        assert tuner.searches[0].best_seconds < report.best_seconds == report.default_seconds
        assert report.schedule == str(tuner.searches[0].default)


class Interrupted(MadeUp):
    """Ctrl-C in the middle of a round."""

    def seconds(self, c: Candidate) -> float:
        if self.asked == 13:
            raise KeyboardInterrupt
        return super().seconds(c)


def test_an_interrupt_loses_no_trial_that_has_ended(tmp_path: Path) -> None:
    with Database(tmp_path / "r.db") as database:
        with pytest.raises(KeyboardInterrupt):
            make_tuner(database, Interrupted()).run(Budget(trials=32))
        assert sum(database.stats().measurements.values()) == 12


def test_a_second_run_goes_on_where_the_first_stopped(tmp_path: Path) -> None:
    with Database(tmp_path / "r.db") as database:
        make_tuner(database, MadeUp()).run(Budget(trials=24))
        again = make_tuner(database, MadeUp(), seed=1)
        assert len(again.searches[0].known) == 24
        again.run(Budget(trials=8))
        assert len(again.searches[0].known) == 32


def test_time_is_a_limit(tmp_path: Path) -> None:
    with Database(tmp_path / "r.db") as database:
        tuner = make_tuner(database, MadeUp())
        tuner.run(Budget(0.0))
        assert tuner.reports()[0].trials == 0


def test_real_trials_give_right_results(tmp_path: Path) -> None:
    graph = small_graph()
    reports = tune_graphs([graph], HOST, 1, Budget(trials=8), database=tmp_path / "r.db")
    assert sum(r.trials for r in reports) == 8
    assert reports[0].outcomes.get("ok", 0) > 0
    x = np.random.default_rng(1).standard_normal((24, 40)).astype(np.float32)
    w = graph.constants[0].array
    np.testing.assert_allclose(whet.compile(graph)(x), np.maximum(x @ w, 0), rtol=1e-4, atol=1e-5)
