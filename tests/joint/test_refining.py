"""Tuning for a GPU that is made up: kernels are chosen inside networks, and builds take them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE
from tests.targets import HOST
from tests.tune.networks import TARGET, US, measured_alone, products
from tests.tune.test_tuner import small_graph
from whet.build.cuda.backend import CudaBackend
from whet.build.native import build
from whet.build.tasks import planned
from whet.codegen.cuda.generator import CudaGenerator
from whet.codegen.cuda.launch import Launch
from whet.core.dtypes import f8e5m2, f32
from whet.core.gpu import GpuTarget
from whet.core.outcomes import Outcome
from whet.core.types import TensorType
from whet.db.store import Database
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.joint import together
from whet.joint.kept import UNCHANGED
from whet.joint.refining import SECONDS, SHARE, kept_seconds
from whet.joint.together import Setting, optimize_together
from whet.joint.tuning import refine_tuned, tune_graphs
from whet.measure.cuda.network_jobs import NetworkJob
from whet.measure.cuda.runner import CudaRunner
from whet.measure.kernel_process import Loadable, Ran
from whet.measure.results import Candidate, Comparison, Measured
from whet.measure.statistics import is_better_network, network_turns
from whet.measure.trials import comparison_of
from whet.ops.casting import Cast
from whet.ops.matmul import MatMul
from whet.runtime.schedules import decode_schedules, encode_schedules
from whet.schedule.program.triggers import AT_END, NEVER
from whet.tasks.steps import Plan, Step
from whet.tasks.task import Task
from whet.tune.report import Refining, Report, Status
from whet.tune.schedule import Schedules
from whet.tune.tuner import Budget


class MadeUpGpu(CudaRunner):
    """Alone, kernels with small holes are fast.  In a network, what a kernel takes depends on its
    launch and the one in front of it, and it lets the next one in when its sums are complete."""

    def seconds(self, c: Candidate) -> float:
        return US * (100 + sum(n for name, n in c.holes.items() if name != "trigger"))

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: GpuTarget
    ) -> Iterator[Measured]:
        for c in candidates:
            yield Measured(c, Outcome.OK, (self.seconds(c),) * 9, checked=True)

    def compare(
        self,
        task: Task,
        candidate: Candidate,
        incumbent: Candidate,
        threads: int,
        target: GpuTarget,
        seconds: float = 0.5,
    ) -> Comparison:
        times = [(self.seconds(c),) * 9 for c in (candidate, incumbent)]
        return Comparison(True, 0.5, 0.4, 0.6, *times)

    def compare_networks(
        self, name: str, new: Loadable, old: Loadable, seconds: float
    ) -> Comparison:
        times = [network_seconds(new), network_seconds(old)]
        a, b = network_turns(*(lambda n, t=t: n * t for t in times), lambda: None, seconds)
        return comparison_of(Ran(Outcome.OK, "", (tuple(a), tuple(b))), is_better_network)


def network_seconds(network: Loadable) -> float:
    assert isinstance(network.job, NetworkJob)
    total, before = 0.0, None
    for call in network.job.calls:
        text = bytes(network.arrays[call.cubin]).decode()
        ends_early = "launch_dependents" in text.partition("wait")[2]
        chance = zlib.crc32(f"{before} {sizes(call.launch)}".encode()) % 5
        total += US * (20 + chance - 2 * ends_early)
        before = sizes(call.launch)
    return total


def sizes(launch: Launch) -> tuple[int, ...]:
    return launch.clusters, launch.cluster, launch.threads, launch.shared_bytes


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is the text that it would be made of."""

    def texts(generator: CudaGenerator, given: Sequence[str], cache: object) -> list[bytes]:
        return [text.encode() for text in given]

    monkeypatch.setattr(CudaGenerator, "objects", texts)
    monkeypatch.setattr(CudaBackend, "runner", lambda backend: MadeUpGpu(build_processes=1))
    monkeypatch.setattr(MadeUpGpu, "build_ahead", lambda self, wanted, target: list(wanted))


def tune(path: Path, *graphs: Graph, trials: int = 60) -> list[Refining]:
    """The last state of every network."""
    states: dict[str, Refining] = {}

    def watch(reports: Sequence[Report], status: Status) -> None:
        if status.refining is not None:
            assert sum(r.trials for r in reports) == status.trials == trials
            states[status.refining.network] = status.refining

    tune_graphs(graphs, TARGET, 1, Budget(trials=trials), watch=watch, database=path)
    return list(states.values())


def kernels(graph: Graph, known: Schedules, *, refined: bool = True) -> list[bytes]:
    """The code of a build, which is for another machine, in the order in which it runs."""
    made = build(graph, TARGET, 1, NO_CACHE, schedule=known,
                 in_plan=known.within if refined else None, evidence=known.faster)  # fmt: skip
    images = [s.image for s in made.segments]
    return [image.cubins[call.cubin] for image in images for call in image.calls]


def kernels_of(plan: Plan, known: Schedules) -> list[bytes]:
    """The code of the candidates that are chosen."""
    found = []
    for step in plan.steps:
        assert isinstance(step, Step)
        kernel = known.chosen(step.task).kernel(step.task, f"k{step.key[:24]}")
        found.append(CudaGenerator(TARGET).source(kernel.program).text.encode())
    return found


GRAPH, OTHER = products(48, 64, 48, 96), products(48, 64)
(GRAPH_PLAN,) = planned(GRAPH, TARGET, 1, "real")


def test_a_build_takes_what_was_chosen_in_its_network(tmp_path: Path) -> None:
    (state,) = tune(tmp_path / "r.db", GRAPH)
    assert state.ended
    assert state.gain > 1.05
    assert state.changed == len(GRAPH_PLAN.tasks)
    with Database(tmp_path / "r.db") as database:
        known = Schedules(TARGET, 1, "real", database)
        (plan,) = planned(GRAPH, TARGET, 1, "real", known.faster)
        within = known.within(plan.key)
        chosen = [within.chosen(task) for task in plan.tasks.values()]
        assert {c.origin for c in chosen} == {"network"}
        assert {c.candidate.holes["trigger"] for c in chosen} == {AT_END}
        assert kernels(GRAPH, known) == kernels_of(plan, within)
        assert kernels(GRAPH, known) != kernels(GRAPH, known, refined=False)
        # Another network, which has two of the tasks, keeps what is best alone.
        (other,) = planned(OTHER, TARGET, 1, "real", known.faster)
        assert set(other.tasks) & set(plan.tasks)
        assert kernels(OTHER, known) == kernels_of(other, known)


def test_what_was_chosen_is_in_the_key_of_a_build(tmp_path: Path) -> None:
    tune(tmp_path / "r.db", GRAPH)
    with Database(tmp_path / "r.db") as database:
        before = Schedules(TARGET, 1, "real", database).key
        (plan,) = planned(GRAPH, TARGET, 1, "real")
        (trial, *_) = database.network_trials(plan.key, TARGET, 1)
        database.add_network_trials([replace(trial, kept=True)])
        assert Schedules(TARGET, 1, "real", database).key != before


def test_an_artifact_takes_it_along(tmp_path: Path) -> None:
    tune(tmp_path / "r.db", GRAPH)
    with Database(tmp_path / "r.db") as database:
        known = Schedules(TARGET, 1, "real", database)
        wanted, alone = kernels(GRAPH, known), kernels(OTHER, known)
        stored = known.used(planned(GRAPH, TARGET, 1, "real", known.faster))
    assert {s.network for s in stored} > {""}
    stored = decode_schedules(encode_schedules(stored))
    elsewhere = Schedules(TARGET, 1, "real", None, stored)
    assert kernels(GRAPH, elsewhere) == wanted
    assert kernels(OTHER, elsewhere) == alone
    (plan,) = planned(GRAPH, TARGET, 1, "real", elsewhere.faster)
    for s in stored:
        if s.network:
            assert s.holes["trigger"] == AT_END
            wrong = replace(s, holes={**s.holes, "trigger": 77})
            other = Schedules(TARGET, 1, "real", None, [wrong], plan.key)
            assert other.chosen(plan.tasks[s.task]).origin == "default"


def test_a_search_is_refined_once_more_where_it_ended(tmp_path: Path) -> None:
    tune(tmp_path / "r.db", GRAPH)
    with Database(tmp_path / "r.db") as database:
        before = kernels(GRAPH, Schedules(TARGET, 1, "real", database))
        (plan,) = planned(GRAPH, TARGET, 1, "real")
        trials = len(database.network_trials(plan.key, TARGET, 1))
    assert trials
    (state,) = tune(tmp_path / "r.db", GRAPH, trials=1)
    with Database(tmp_path / "r.db") as database:
        assert kernels(GRAPH, Schedules(TARGET, 1, "real", database)) == before
    assert state.tried < trials


def two_segments() -> Graph:
    """Products around a type that no kernel holds."""
    b = GraphBuilder()
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((32, 48), (48, 64))]
    x = b.input("x", TensorType((24, 32), f32))
    first = b.one(MatMul(), x, b.constant(weights[0]))
    between = b.one(Cast(f32), b.one(Cast(f8e5m2), first))
    return Graph((x,), (b.one(MatMul(), between, b.constant(weights[1])),), ("y",))


def test_segments_are_refined_one_by_one(tmp_path: Path) -> None:
    states = tune(tmp_path / "r.db", two_segments())
    assert [s.network for s in states] == ["network 1 of 2", "network 2 of 2"]
    with Database(tmp_path / "r.db") as database:
        known = Schedules(TARGET, 1, "real", database)
        first, second = planned(two_segments(), TARGET, 1, "real", known.faster)
        assert first.key != second.key
        for plan in (first, second):
            (task,) = plan.tasks.values()
            assert known.within(plan.key).chosen(task).candidate.holes["trigger"] == AT_END
        assert len(kernels(two_segments(), known)) == 2


def test_every_network_is_refined_once(tmp_path: Path) -> None:
    states = tune(tmp_path / "r.db", GRAPH, OTHER, GRAPH, trials=80)
    assert [s.network for s in states] == ["network 1 of 2", "network 2 of 2"]
    assert all(s.ended and s.tried for s in states)


def test_networks_run_in_the_process_that_owns_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels compute nothing, so that no variant passes its check; measured ones count."""
    monkeypatch.setattr(
        CudaBackend, "runner",
        lambda backend: CudaRunner(build_processes=1, worker="tests.joint.silent_gpu",
                                   compiler="tests.measure.cuda.fake_compiler"),
    )  # fmt: skip
    with Database(tmp_path / "r.db") as database:
        measured_alone(database, GRAPH_PLAN, 4)
        records = list(database.records())
    (state,) = refine_tuned([GRAPH], TARGET, 1, 1e6, database=tmp_path / "r.db")
    assert state.gain > 1.0
    with Database(tmp_path / "r.db") as database:
        known = Schedules(TARGET, 1, "real", database)
        assert list(database.records()) == records
        trials = database.network_trials(GRAPH_PLAN.key, TARGET, 1)
        assert {t.outcome for t in trials if t.holes["trigger"] != NEVER} == {Outcome.WRONG_ANSWER}
        assert {t.outcome for t in trials if t.holes["trigger"] == NEVER} == {Outcome.OK}
        assert any(t.kept for t in trials)
        assert kernels(GRAPH, known) == kernels_of(GRAPH_PLAN, known.within(GRAPH_PLAN.key))


def test_a_share_of_the_budget_is_kept_where_networks_are_timed() -> None:
    assert kept_seconds(TARGET, 60.0) == SHARE * 60.0
    assert kept_seconds(TARGET, math.inf) == SECONDS
    assert kept_seconds(HOST, 60.0) == kept_seconds(HOST, math.inf) == 0.0


def test_no_time_is_left_by_a_budget_of_none(tmp_path: Path) -> None:
    reports = tune_graphs([GRAPH], TARGET, 1, Budget(0.0), database=tmp_path / "r.db")
    assert not any(r.trials for r in reports)
    with Database(tmp_path / "r.db") as database:
        (plan,) = planned(GRAPH, TARGET, 1, "real")
        assert not database.network_trials(plan.key, TARGET, 1)


def test_searches_for_cpus_are_what_they_were(tmp_path: Path) -> None:
    told: list[Status] = []
    tune_graphs([small_graph()], HOST, 1, Budget(trials=4), database=tmp_path / "r.db",
                watch=lambda reports, status: told.append(status))  # fmt: skip
    assert told
    assert all(status.refining is None for status in told)


def test_graphs_that_are_searched_with_kernels_are_refined_in_the_end(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "_search", lambda *args, **options: UNCHANGED)
    monkeypatch.setattr(together, "remember", lambda *args: None)
    monkeypatch.setattr(together, "tune_tasks", lambda tasks, *args, **options: asked.append(args))
    asked: list[tuple[object, ...]] = []
    refined: list[tuple[Graph, float]] = []

    def refine(graphs: Sequence[Graph], target: object, threads: int, seconds: float,
               **options: object) -> None:  # fmt: skip
        refined.extend((graph, seconds) for graph in graphs)

    monkeypatch.setattr(together, "refine_tuned", refine)
    optimize_together(GRAPH, Setting(TARGET, 1, "real", NO_CACHE), 1000.0)
    ((graph, seconds),) = refined
    assert graph is GRAPH
    assert SHARE * 1000.0 <= seconds <= 1000.0
    budgets = [budget for *_, budget in asked]
    assert all(b.seconds <= (1 - SHARE) * 1000.0 for b in budgets)  # type: ignore[attr-defined]
    refined.clear()
    optimize_together(small_graph(), Setting(HOST, 1, "real", NO_CACHE), 10.0)
    assert not refined
