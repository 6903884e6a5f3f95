"""Measuring: right kernels get times, all others an outcome, and the driver lives."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.measure.planted import FAULTS, TARGET, double_task, matmul_task, plant, uproot
from whet.core.outcomes import Outcome
from whet.db.store import Database
from whet.measure.cpu.measurer import LIMIT_BY_BEST, Measurer, _place
from whet.measure.kernel_process import Loadable, Ran
from whet.measure.records import record_of
from whet.measure.results import Candidate, Measured
from whet.measure.statistics import is_better, median_interval, turn_ratios
from whet.measure.trials import LEAST_LIMIT_SECONDS
from whet.schedule.default import default_choice
from whet.schedule.space.registry import SKETCHES
from whet.schedule.space.trace import Trace, TransformStep, trace_of
from whet.tasks.examples import Example, make_example
from whet.tasks.task import Task


@pytest.fixture(scope="module")
def measurer() -> Iterator[Measurer]:
    plant()
    with Measurer(first_limit=0.3) as made:
        yield made
    uproot()


def planted(fault: str) -> Candidate:
    return Candidate("planted", {"fault": list(FAULTS).index(fault)})


def some_candidates(task: Task, sketch: str, count: int, threads: int = 1) -> list[Candidate]:
    form = SKETCHES[sketch].fits(task)
    space = SKETCHES[sketch].space(form, TARGET, threads)
    rows = len(next(iter(space.values())))
    chosen = np.random.default_rng(0).choice(rows, min(count, rows), replace=False)
    return [Candidate(sketch, {h: int(c[n]) for h, c in space.items()}) for n in chosen]


def measure_fault(measurer: Measurer, fault: str) -> Measured:
    (result,) = measurer.measure(double_task(), [planted(fault)], 1, TARGET)
    return result


@pytest.mark.parametrize(
    ("fault", "outcome", "message"),
    [
        ("right", Outcome.OK, ""),
        ("wrong constant", Outcome.WRONG_ANSWER, "elements are wrong, the first at"),
        ("unfinished", Outcome.WRONG_ANSWER, "1 of 100 elements are wrong, the first at [99]: nan"),
        ("reads behind", Outcome.CRASH, "SIGSEGV"),
        ("writes before", Outcome.CRASH, "SIGSEGV"),
        ("writes input", Outcome.CRASH, "SIGSEGV"),
        ("hangs", Outcome.RUN_TIMEOUT, "a call took more than"),
        ("unrolled", Outcome.LIMIT, "operations after unrolling"),
        ("stacked", Outcome.LIMIT, "bytes on the stack"),
        ("raises", Outcome.BUILD_ERROR, "ZeroDivisionError: no such tile"),
    ],
)
def test_faults_are_outcomes(
    measurer: Measurer, fault: str, outcome: Outcome, message: str
) -> None:
    result = measure_fault(measurer, fault)
    assert result.outcome is outcome, result
    assert message in result.message
    assert result.checked == (outcome is Outcome.OK)
    assert bool(result.samples) == (outcome is Outcome.OK)


def test_a_crash_or_hang_costs_one_worker_and_no_result(measurer: Measurer) -> None:
    before = measurer.runner.starts
    faults = ["right", "reads behind", "right", "hangs", "right"]
    results = measurer.measure(double_task(), [planted(f) for f in faults], 1, TARGET)
    assert [r.outcome for r in results] == ["ok", "crash", "ok", "run_timeout", "ok"]
    assert measurer.runner.starts - before <= 3


def test_unknown_sketches_and_wild_holes_are_outcomes(measurer: Measurer) -> None:
    task = matmul_task(8, 8, 32)
    wild = [
        Candidate("no such sketch", {}),
        Candidate("contraction", {"mr": 0, "nv": 1, "lanes": 16}),
        Candidate("contraction", {"other": 3}),
        Candidate("planted", {"fault": 0}),
    ]
    results = measurer.measure(task, wild, 1, TARGET)
    assert {r.outcome for r in results} == {Outcome.BUILD_ERROR}
    assert "there is no sketch 'no such sketch'" in results[0].message
    assert "does not fit" in results[3].message


@pytest.mark.parametrize("threads", [1, 2])
def test_real_candidates_are_right(measurer: Measurer, threads: int) -> None:
    task = matmul_task(37, 29, 45)
    candidates = some_candidates(task, "contraction", 5, threads)
    results = measurer.measure(task, candidates, threads, TARGET)
    assert [r.outcome for r in results] == [Outcome.OK] * len(candidates), results
    for r in results:
        assert all(s > 0 for s in r.samples)
        assert r.build_ms > 0
        assert r.code_bytes > 0


def test_traces_are_measured_and_recorded(measurer: Measurer, tmp_path: Path) -> None:
    task = matmul_task(16, 16, 32)
    trace = trace_of(default_choice(task, TARGET, 1))
    naive = Trace((TransformStep("parallel", loop="i"),), {})
    candidates = [
        Candidate("trace", trace.holes, trace.to_json()),
        Candidate("trace", {}, naive.to_json()),
        Candidate("trace", {}, "no trace"),
    ]
    results = measurer.measure(task, candidates, 1, TARGET)
    assert [r.outcome for r in results] == ["ok", "ok", "build_error"], results
    with Database(tmp_path / "records.db") as database:
        database.add(record_of(r, task, TARGET, 1) for r in results)
        best = database.best(task.key, TARGET, 1)
        assert database.stats().measurements == {"build_error": 1, "ok": 2}
    assert best is not None
    assert best.checked
    assert best.seconds == min(r.seconds for r in results)
    assert Trace.from_json(best.trace).steps
    assert best.workload.class_key == matmul_task(8, 40, 64).class_key


def test_wrong_expectations_are_noticed() -> None:
    """The kernel is right, what it should give is not: only a real comparison can tell."""

    def examples(task: Task) -> Example:
        good = make_example(task)
        bad = good.outputs[0].copy()
        bad[-1, -1] += 1
        return Example(good.inputs, (bad,), good.exact)

    task = matmul_task(8, 8, 32)
    with Measurer(examples, build_processes=1) as measurer:
        (result,) = measurer.measure(task, some_candidates(task, "contraction", 1), 1, TARGET)
    assert result.outcome is Outcome.WRONG_ANSWER
    assert "[7, 31]" in result.message


def test_a_task_without_example_is_an_outcome() -> None:
    def examples(task: Task) -> Example:
        raise MemoryError("too large")

    task = matmul_task(8, 8, 32)
    with Measurer(examples) as measurer:
        (result,) = measurer.measure(task, some_candidates(task, "contraction", 1), 1, TARGET)
    assert result.outcome is Outcome.RUN_ERROR
    assert "no example of the task: MemoryError: too large" in result.message


def test_a_worker_killed_from_outside_is_replaced(measurer: Measurer) -> None:
    assert measure_fault(measurer, "right").ok
    worker = measurer.runner._worker
    assert worker is not None
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    assert measure_fault(measurer, "right").ok
    for builder in measurer.builder._idle:
        os.killpg(builder.process.pid, signal.SIGKILL)
        builder.process.wait()
    assert measure_fault(measurer, "right").ok


def test_limits_shrink_with_the_best(measurer: Measurer, monkeypatch: pytest.MonkeyPatch) -> None:
    task = double_task(101)
    place, times = _place(measurer._bench_for(task, 1, TARGET)), measurer.times
    assert times.limit(place) == 0.3
    measured = measurer.measure(task, [planted("right")], 1, TARGET)[0]
    assert times.seconds[place] == measured.seconds
    for best, limit in ((1e-6, LEAST_LIMIT_SECONDS), (7.0, 7.0 * LIMIT_BY_BEST)):
        monkeypatch.setitem(times.seconds, place, best)
        assert times.limit(place) == limit


def test_comparing_says_what_its_samples_say(measurer: Measurer) -> None:
    task = matmul_task(32, 32, 32)
    first, second = some_candidates(task, "contraction", 2)
    found = measurer.compare(task, first, second, 1, TARGET, seconds=0.05)
    assert found.outcome is Outcome.OK
    # A steady machine needs four rounds of two samples, the fewest that bound a median.
    assert len(found.candidate) == len(found.incumbent) >= 8
    ratios = turn_ratios(found.candidate, found.incumbent)
    assert found.ratio == pytest.approx(float(np.median(ratios)))
    assert (found.low, found.high) == pytest.approx(median_interval(ratios))
    assert found.better == is_better(ratios)


def test_comparing_finds_the_faster_one(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By times that are made up: twice as long for the larger code of the two."""
    task = matmul_task(16, 16, 32)
    first, second = some_candidates(task, "contraction", 2)

    def compare(a: Loadable, b: Loadable, seconds: float, limit: float) -> Ran:
        longer = len(a.data) > len(b.data)
        times = (2.0,) * 16, (1.0,) * 16
        return Ran(Outcome.OK, "", times if longer else times[::-1])

    monkeypatch.setattr(measurer.runner, "compare", compare)
    found = [
        measurer.compare(task, *pair, 1, TARGET) for pair in ((first, second), (second, first))
    ]
    assert sorted((c.better, c.ratio) for c in found) == [(False, 2.0), (True, 0.5)]


def test_comparing_with_a_faulty_kernel_is_an_outcome(measurer: Measurer) -> None:
    for fault, outcome in (("wrong constant", "wrong_answer"), ("reads behind", "crash")):
        found = measurer.compare(double_task(), planted(fault), planted("right"), 1, TARGET)
        assert not found.better
        assert found.outcome == outcome


@pytest.mark.usefixtures("planted_sketch")
def test_closing_ends_all_processes() -> None:
    measurer = Measurer(build_processes=2)
    assert measurer.measure(double_task(), [planted("right")] * 3, 1, TARGET)[0].ok
    assert measurer.runner._worker is not None
    processes = [measurer.runner._worker.process, *(w.process for w in measurer.builder._idle)]
    measurer.close()
    assert all(p.returncode is not None for p in processes)


def test_interrupting_leaves_the_measurer_usable(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a kernel runs: the answer that is under way must not answer the next job."""
    task = double_task(102)
    assert measurer.measure(task, [planted("right")], 1, TARGET)[0].ok
    worker = measurer.runner._worker
    assert worker is not None

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "receive", interrupt)
    with pytest.raises(KeyboardInterrupt):
        measurer.measure(task, [planted("right")], 1, TARGET)
    assert worker.process.returncode is not None
    assert (
        measurer.measure(task, [planted("wrong constant")], 1, TARGET)[0].outcome == "wrong_answer"
    )
