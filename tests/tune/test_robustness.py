"""What can happen to a tuner: kills, company, a full disk, candidates that misbehave."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.measure.conftest import planted_sketch  # noqa: F401 - a fixture
from tests.measure.planted import FAULTS, TARGET as HOST, double_task
from tests.tune.test_tuner import TARGET, MadeUp, make_tuner
from tests.tune.tuners import TRIALS
from whet.core.errors import WhetError
from whet.db.store import Database
from whet.joint.tuning import tune_tasks
from whet.tune.search import WeightedTask
from whet.tune.tuner import Budget

ROOT = Path(__file__).resolve().parents[2]


def run_tuners(path: Path, count: int, how: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tune.tuners", str(path), str(count), how],
        stdout=subprocess.PIPE, cwd=ROOT, check=True, timeout=180,
    )  # fmt: skip
    found: list[int] = json.loads(done.stdout)
    return found


def test_a_kill_loses_nothing_committed(tmp_path: Path) -> None:
    """50 tuners, one after the other, go on with each other's work and are killed."""
    path = tmp_path / "r.db"
    committed = run_tuners(path, 50, "kill")
    assert sum(count > 0 for count in committed) > 5
    with Database(path) as database:
        assert database.problems() == []
        assert sum(database.stats().measurements.values()) >= sum(committed)
        tuner = make_tuner(database, MadeUp())
        assert len(tuner.searches[0].known) == database.stats().records
        tuner.run(Budget(trials=8))


def test_two_tuners_share_a_database(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    assert run_tuners(path, 2, "finish") == [TRIALS, TRIALS]
    with Database(path) as database:
        assert database.problems() == []
        assert sum(database.stats().measurements.values()) >= TRIALS
        task = make_tuner(database, MadeUp()).searches[0].task
        assert database.best(task.key, TARGET, 1) is not None


def test_a_full_disk_stops_the_search_and_harms_nothing(tmp_path: Path) -> None:
    """The limit on the size of files stands for a full disk."""
    path = tmp_path / "r.db"
    with Database(path) as database:
        tuner = make_tuner(database, MadeUp())
        tuner.run(Budget(trials=8))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, hard))
        try:
            with pytest.raises(WhetError, match="free some space") as full:
                tuner.run(Budget(60.0))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert full.value.code == "WH4102"
        stored = sum(database.stats().measurements.values())
        assert stored >= 8
        assert len(tuner.searches[0].known) <= stored  # what is not stored does not count
        tuner.run(Budget(trials=8))  # as soon as there is room, it goes on
    with Database(path) as database:
        assert database.problems() == []
        assert sum(database.stats().measurements.values()) > stored


@pytest.mark.usefixtures("planted_sketch")
def test_candidates_that_misbehave_are_recorded(tmp_path: Path) -> None:
    """Wrong results, stray accesses, endless loops: each is an outcome, one kernel is right."""
    task, path = double_task(), tmp_path / "r.db"
    (report,) = tune_tasks(
        [WeightedTask(task, "double", (1,))], HOST, 1, Budget(trials=len(FAULTS)),
        sketches=lambda name: name == "planted", database=path,
    )  # fmt: skip
    assert report.trials == len(FAULTS)
    assert report.outcomes["ok"] == 1
    assert {"wrong_answer", "crash", "run_timeout"} <= set(report.outcomes)
    with Database(path) as database:
        best = database.best(task.key, HOST, 1)
        assert best is not None
        assert list(FAULTS)[best.holes["fault"]] == "right"
        assert sum(database.stats().measurements.values()) == len(FAULTS)
