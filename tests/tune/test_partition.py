"""Computed together or apart: the price decides, and measurements overrule it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE, TARGET
from whet.build.native import build
from whet.build.tasks import planned
from whet.codegen.llvm.generator import LlvmGenerator
from whet.core.dtypes import f32
from whet.core.outcomes import Outcome
from whet.core.types import TensorType
from whet.db.store import Database
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.graph.passes import expand_composites
from whet.joint.tuning import weighted_tasks
from whet.measure.records import record_of
from whet.measure.results import Candidate, Measured
from whet.ops.matmul import MatMul
from whet.ops.softmax import Softmax
from whet.schedule.default import default_choice
from whet.schedule.prices import AnalyticPrice
from whet.tasks.segment_plan import plan_segment
from whet.tasks.steps import Plan, Step
from whet.tasks.task import Task
from whet.tune.schedule import Schedules


def rows_of_a_product() -> Graph:
    """softmax(x @ w), which one kernel or two can compute."""
    b = GraphBuilder()
    x = b.input("x", TensorType((48, 40), f32))
    w = b.constant(np.random.default_rng(0).standard_normal((40, 56)).astype(np.float32))
    made = Graph((x,), (b.one(Softmax(1), b.one(MatMul(), x, w)),), ("y",))  # type: ignore[arg-type]
    return expand_composites(made)


def plan(chosen: bool | None) -> Plan:
    prices = AnalyticPrice(TARGET, 1, "real", lambda together, apart: chosen)
    return plan_segment(rows_of_a_product(), prices)


def test_both_ways_are_known_whichever_is_taken() -> None:
    together, apart = plan(True), plan(False)
    assert (len(together.steps), len(apart.steps)) == (1, 2)
    assert [s.key for s in together.others] == [s.key for s in apart.steps]
    assert [s.key for s in apart.others] == [s.key for s in together.steps]


def test_without_measurements_the_cheaper_way_is_taken() -> None:
    price = AnalyticPrice(TARGET, 1, "real")
    (one,) = (s for s in plan(True).steps if isinstance(s, Step))
    two = [s for s in plan(False).steps if isinstance(s, Step)]
    between = price.between(48 * 56 * 4)
    estimates = [price(s.task) for s in (one, *two)]
    first, *others = (e.seconds for e in estimates if e is not None)
    cheaper = first < sum(others) + between
    assert len(plan(None).steps) == (1 if cheaper else 2)


def test_three_groups_are_one_where_two_would_not_pay() -> None:
    """A product, its softmax and a product: judged as a whole before the first two are."""
    b = GraphBuilder()
    q, k, v = (b.input(n, TensorType((24, 24), f32)) for n in "qkv")
    y = b.one(MatMul(), b.one(Softmax(1), b.one(MatMul(), q, k)), v)
    graph = expand_composites(Graph((q, k, v), (y,), ("y",)))  # type: ignore[arg-type]
    asked: list[int] = []

    def only_all(together: Task, apart: Sequence[Task]) -> bool:
        asked.append(len(apart))
        return len(apart) == 3

    assert len(plan_segment(graph, AnalyticPrice(TARGET, 1, "real", only_all)).steps) == 1
    assert asked == [3]


@pytest.mark.parametrize("chosen", [True, False])
def test_both_ways_give_the_same(chosen: bool) -> None:
    graph = rows_of_a_product()
    x = np.random.default_rng(1).standard_normal((48, 40)).astype(np.float32)
    native = build(graph, TARGET, 1, NO_CACHE, evidence=lambda together, apart: chosen)
    (got,), (expected,) = native((x,)), interpret(graph, (x,))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def remember(database: Database, task: Task, seconds: float) -> None:
    choice = default_choice(task, TARGET, 1)
    candidate = Candidate(choice.sketch.name, choice.holes)
    measured = Measured(candidate, Outcome.OK, (seconds,) * 3, checked=True)
    database.add([record_of(measured, task, TARGET, 1)])


@pytest.mark.parametrize("faster", [True, False])
def test_measured_times_decide_and_travel_with_the_model(tmp_path: Path, faster: bool) -> None:
    graph = rows_of_a_product()
    one, two = plan(True).steps[0], plan(False).steps
    assert isinstance(one, Step)
    with Database(tmp_path / "records") as database:
        schedules = Schedules(TARGET, 1, "real", database)
        parts = [s.task for s in two if isinstance(s, Step)]
        assert schedules.faster(one.task, parts) is None
        remember(database, one.task, 1e-5 if faster else 9e-5)
        assert schedules.faster(one.task, parts) is None  # the other way was never measured
        for part in parts:
            remember(database, part, 2e-5)
        assert schedules.faster(one.task, parts) is faster
        tasks = weighted_tasks([graph], TARGET, 1, "real", schedules.faster)
        assert sum(not w.alternative for w in tasks) == (1 if faster else 2)
        assert {w.count for w in tasks if w.alternative} == {0}
        stored = schedules.used(planned(graph, TARGET, 1, "real", schedules.faster))
    elsewhere = Schedules(TARGET, 1, "real", None, stored)
    assert elsewhere.faster(one.task, parts) is faster


def test_listing_tasks_generates_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("code was generated")

    monkeypatch.setattr(LlvmGenerator, "source", refuse)
    monkeypatch.setattr("whet.codegen.llvm.emit.emit_program", refuse)
    assert weighted_tasks([rows_of_a_product()], TARGET, 1, "real")
