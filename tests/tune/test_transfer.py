"""Transfer: schedules of similar tasks for one that was never tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tune.test_tuner import MadeUp
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.outcomes import Outcome
from whet.core.types import TensorType
from whet.db.record import Record
from whet.db.store import Database
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.joint.tuning import weighted_tasks
from whet.measure.records import workload_of
from whet.measure.results import Candidate
from whet.ops.activation import Relu
from whet.ops.matmul import MatMul
from whet.schedule.default import default_choice
from whet.tune.schedule import choose
from whet.tune.search import WeightedTask
from whet.tune.space import Row, Space, make_space
from whet.tune.transfer import best_without_trials, transferred
from whet.tune.tuner import Budget, Tuner

TARGET = PRESETS["x86-64-v3"]


def product(m: int, k: int, n: int) -> WeightedTask:
    b = GraphBuilder()
    x = b.input("x", TensorType((m, k), f32))
    w = b.constant(np.random.default_rng(0).standard_normal((k, n)).astype(np.float32))
    graph = Graph((x,), (b.one(Relu(), b.one(MatMul(), x, w)),), ("y",))
    (task,) = weighted_tasks([graph], TARGET, 1, "real")
    return task


DONOR, NEW = product(256, 192, 320), product(200, 160, 352)


def default_row(space: Space) -> Row:
    choice = default_choice(space.task, TARGET, 1)
    row = space.find(Candidate(choice.sketch.name, choice.holes))
    assert row is not None
    return row


def records(factor: Callable[[Candidate], float]) -> list[Record]:
    """Trials of rows of the donor, whose times are the estimates times a factor."""
    task = DONOR.task
    space = make_space(task, TARGET, 1)
    found = []
    for number, table in enumerate(space.tables):
        for row in np.argsort(table.costs)[:200]:
            c, expected = space.candidate((number, int(row))), float(table.costs[row]) * 1e-9
            found.append(
                Record(workload_of(task), TARGET, 1, c.sketch, c.holes, Outcome.OK,
                       (expected * factor(c),), checked=True, estimate=expected)
            )  # fmt: skip
    return found


def test_the_donor_is_of_the_same_class_and_another_task() -> None:
    assert DONOR.task.class_key == NEW.task.class_key
    assert DONOR.task.key != NEW.task.key


def test_evidence_that_agrees_with_the_model_changes_nothing() -> None:
    space = make_space(NEW.task, TARGET, 1)
    first = default_row(space)
    found = transferred(space, records(lambda c: 2.0), first)
    assert best_without_trials(found, first) is None
    times = {p.row: p.seconds for p in found}
    assert times[first] == pytest.approx(2e-9 * space.cost(first), rel=0.01)


def test_what_was_slower_than_expected_is_avoided() -> None:
    """The default's rows per tile took three times as long as the model said."""
    space = make_space(NEW.task, TARGET, 1)
    first = default_row(space)
    slow = space.candidate(first).holes["mr"]
    found = transferred(space, records(lambda c: 3.0 if c.holes.get("mr") == slow else 1.0), first)
    chosen = best_without_trials(found, first)
    assert chosen is not None
    assert space.candidate(chosen).holes.get("mr") != slow


def test_what_failed_is_left_out() -> None:
    space = make_space(NEW.task, TARGET, 1)
    first = default_row(space)
    sound = records(lambda c: 1.0)
    best = transferred(space, sound, first)[0]
    c = space.candidate(best.row)
    crashed = Record(workload_of(DONOR.task), TARGET, 1, c.sketch, c.holes, Outcome.CRASH)
    assert best.row not in {p.row for p in transferred(space, [*sound, crashed], first)}


def test_candidates_are_legal_rows_of_the_new_task() -> None:
    space = make_space(NEW.task, TARGET, 1)
    found = transferred(space, records(lambda c: 1.0), default_row(space))
    assert len(found) > 8
    assert [p.seconds for p in found] == sorted(p.seconds for p in found)
    for p in found:
        assert space.find(space.candidate(p.row)) == p.row


def test_without_evidence_there_is_nothing() -> None:
    space = make_space(NEW.task, TARGET, 1)
    assert transferred(space, [], default_row(space)) == []
    assert best_without_trials([], default_row(space)) is None


def test_a_compile_uses_it_without_trials(tmp_path: Path) -> None:
    space = make_space(NEW.task, TARGET, 1)
    slow = space.candidate(default_row(space)).holes["mr"]
    with Database(tmp_path / "r.db") as database:
        before = choose(NEW.task, database, TARGET, 1)
        assert before.origin == "default"
        database.add(records(lambda c: 3.0 if c.holes.get("mr") == slow else 1.0))
        after = choose(NEW.task, database, TARGET, 1)
        assert after.origin == "transfer"
        assert after.candidate.holes.get("mr") != slow
        assert after.kernel(NEW.task, "k").program.name == "k"
        assert choose(DONOR.task, database, TARGET, 1).origin == "record"


def test_a_search_starts_with_it(tmp_path: Path) -> None:
    with Database(tmp_path / "r.db") as database:
        database.add(records(lambda c: 1.0))
        tuner = Tuner([NEW], TARGET, 1, database, MadeUp())  # type: ignore[arg-type]
        search = tuner.searches[0]
        assert len(search.seeds) > 1
        tuner.run(Budget(trials=8))
        assert set(search.seeds) <= set(search.known)
