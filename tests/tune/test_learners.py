"""Policies and learners by name, whet's own and those that a user's file adds."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.tune.test_tuner import TARGET, MadeUp, small_graph
from whet.core.errors import UsageError
from whet.db.store import Database
from whet.joint.tuning import weighted_tasks
from whet.tune.models.analytic import Analytic
from whet.tune.models.learners import LEARNERS, find_learner
from whet.tune.models.ranking import RankingLearner
from whet.tune.models.trees import CorrectionLearner
from whet.tune.policies import LEARNING, POLICIES, find_policy, policy_names
from whet.tune.policies.evolution import Evolution
from whet.tune.policies.judge import Judge, learned
from whet.tune.space import Space, make_space
from whet.tune.tuner import Budget, Tuner

LEARNER = """
from whet.tune.models.analytic import Analytic
from whet.tune.models.learners import LEARNERS

taught = []

class Slowest(Analytic):
    def fit(self, trials):
        taught.append(sum(len(t.batch) for t in trials))
        return self

    def scores(self, batch):
        return -super().scores(batch)

LEARNERS["slowest"] = Slowest
"""
POLICY = """
from whet.tune.policies import POLICIES

class Last:
    def propose(self, space, known, count, rng):
        rows = [(n, r) for n, t in enumerate(space.tables) for r in range(len(t.costs))]
        return sorted((r for r in rows if r not in known), reverse=True)[:count]

POLICIES["last"] = Last
"""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What a test adds to the tables is taken out again."""
    before = [dict(table) for table in (LEARNERS, POLICIES, LEARNING)]
    yield
    for table, old in zip((LEARNERS, POLICIES, LEARNING), before):
        table.clear()
        table.update(old)  # type: ignore[arg-type]


def from_outside(folder: Path, text: str) -> dict[str, Any]:
    """What a file of the user's defines, once it has been run."""
    path = folder / "mine.py"
    path.write_text(text)
    return runpy.run_path(str(path))


def tuned(folder: Path, policy: str, model: str | None, trials: int) -> Tuner:
    tasks = weighted_tasks([small_graph()], TARGET, 1, "real")
    with Database(folder / "r.db") as database:
        made = MadeUp()
        tuner = Tuner(tasks, TARGET, 1, database, made, policy=find_policy(policy, model))  # type: ignore[arg-type]
        tuner.run(Budget(60.0, trials))
    return tuner


def test_a_policy_learns_as_it_is_told() -> None:
    kinds = {"correction": CorrectionLearner, "ranking": RankingLearner, "analytic": Analytic}
    for name, kind in kinds.items():
        policy = find_policy("evolution", name)()
        assert isinstance(policy, Evolution)
        assert isinstance(policy.learner, kind)
    default = find_policy("evolution")()
    assert isinstance(default, Evolution)
    assert isinstance(default.learner, CorrectionLearner)


@pytest.mark.parametrize("model", sorted(LEARNERS))
def test_every_learner_serves_a_search(tmp_path: Path, model: str) -> None:
    (report,) = tuned(tmp_path, "evolution", model, 40).reports()
    assert report.trials == 40
    assert report.best_seconds < report.default_seconds


@pytest.mark.parametrize(
    ("policy", "model", "message", "hint"),
    [
        ("evolutoin", None, "there is no policy 'evolutoin'", "evolution"),
        ("evolution", "rank", "there is no cost model 'rank'", "ranking"),
        ("default", "ranking", "the policy 'default' has no learned cost model", "evolution"),
    ],
)
def test_names_that_make_no_sense(policy: str, model: str | None, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        whet.tune_model("no.onnx", trials=1, policy=policy, cost_model=model)
    assert hint in (caught.value.hint or "").replace(",", "").split()


def test_a_learner_from_outside(tmp_path: Path) -> None:
    mine = from_outside(tmp_path, LEARNER)
    tuned(tmp_path, "evolution", "slowest", 32)
    assert any(count >= 16 for count in mine["taught"])


def test_a_policy_from_outside(tmp_path: Path) -> None:
    from_outside(tmp_path, POLICY)
    assert "last" in policy_names()
    (search,) = tuned(tmp_path, "last", None, 16).searches
    last = search.space.tables[-1]
    tried = {row for number, row in search.known if number == len(search.space.tables) - 1}
    assert set(range(len(last.costs) - 8, len(last.costs))) <= tried


def test_who_starts_from_no_model_ignores_the_kept_one() -> None:
    (weighted,) = weighted_tasks([small_graph()], TARGET, 1, "real")
    space = make_space(weighted.task, TARGET, 1)
    kept = Judge(RankingLearner()).model  # any model that is not the analytic one
    based = Space(space.task, space.tables, kept)  # type: ignore[arg-type]
    judge = learned(find_learner("analytic"), based, {})
    assert judge is not None
    assert isinstance(judge.model, Analytic)
