"""Measuring on a GPU that is made up: right kernels get times, all others an outcome."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.measure.cuda.fake_gpu import NAMES, TARGET, plant, uproot
from tests.measure.planted import double_task
from whet.core.outcomes import Outcome
from whet.measure.cuda import prepare, runner as runner_module
from whet.measure.cuda.prepare import Bench, Lowered
from whet.measure.cuda.runner import CudaRunner
from whet.measure.results import Candidate, Measured
from whet.tasks.examples import Example
from whet.tasks.task import Task


def make_runner(**options: object) -> CudaRunner:
    return CudaRunner(
        build_processes=2,
        worker="tests.measure.cuda.fake_gpu",
        compiler="tests.measure.cuda.fake_compiler",
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def runner() -> Iterator[CudaRunner]:
    plant()
    with make_runner() as made:
        yield made
    uproot()


def planted(fault: str) -> Candidate:
    return Candidate("planted_gpu", {"fault": NAMES.index(fault)})


def measured(runner: CudaRunner, *faults: str) -> list[Measured]:
    return list(runner.trials(double_task(), [planted(f) for f in faults], 1, TARGET))


@pytest.mark.parametrize(
    ("fault", "outcome", "message"),
    [
        ("right", Outcome.OK, ""),
        ("wrong", Outcome.WRONG_ANSWER, "elements are wrong, the first at"),
        ("slightly wrong", Outcome.WRONG_ANSWER, "elements are wrong, the first at"),
        ("unfinished", Outcome.WRONG_ANSWER, "1 of 100 elements are wrong, the first at [99]: nan"),
        ("writes before", Outcome.WRONG_ANSWER, "it writes before its output f32[100]"),
        ("writes far behind", Outcome.WRONG_ANSWER, "it writes behind its memory"),
        ("writes input", Outcome.WRONG_ANSWER, "it writes to its input f32[100]"),
        ("dies", Outcome.CRASH, "the process ended with code 3"),
        ("fails for good", Outcome.CRASH, "ILLEGAL_ADDRESS"),
        ("is not launched", Outcome.RUN_ERROR, "NO_RESOURCES"),
        ("is not compiled", Outcome.BUILD_ERROR, "an identifier is undefined"),
        ("is not lowered", Outcome.BUILD_ERROR, "ZeroDivisionError: no such tile"),
    ],
)
def test_faults_are_outcomes(
    runner: CudaRunner, fault: str, outcome: Outcome, message: str
) -> None:
    (result,) = measured(runner, fault)
    assert result.outcome is outcome, result
    assert message in result.message
    assert result.checked == (outcome is Outcome.OK)
    assert bool(result.samples) == (outcome is Outcome.OK)


def test_times_are_those_of_single_calls(runner: CudaRunner) -> None:
    first, second = measured(runner, "right", "also right")
    assert first.seconds == pytest.approx(1e-6)
    assert second.seconds == pytest.approx(2e-6)


def test_results_come_in_the_order_of_candidates(runner: CudaRunner) -> None:
    faults = ["is not lowered", "right", "dies", "also right", "is not compiled", "wrong", "right"]
    found = measured(runner, *faults)
    assert [r.candidate for r in found] == [planted(f) for f in faults]
    assert [r.ok for r in found] == [False, True, False, True, False, False, True]


def test_a_kernel_that_hangs_is_given_up(
    runner: CudaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner.times, "first", 0.2)
    runner.times.seconds.clear()
    hung, right = measured(runner, "hangs", "right")
    assert hung.outcome is Outcome.RUN_TIMEOUT
    assert right.ok


def test_two_kernels_take_turns(runner: CudaRunner) -> None:
    fast, slow = planted("right"), planted("also right")
    result = runner.compare(double_task(), fast, slow, 1, TARGET, seconds=0.01)
    assert result.better
    assert result.ratio == pytest.approx(0.5)
    assert not runner.compare(double_task(), slow, fast, 1, TARGET, seconds=0.01).better


@pytest.mark.parametrize("fault", ["is not lowered", "is not compiled", "wrong", "dies"])
def test_a_comparison_with_something_broken_decides_nothing(runner: CudaRunner, fault: str) -> None:
    result = runner.compare(double_task(), planted(fault), planted("right"), 1, TARGET)
    assert not result.better
    assert result.outcome is not Outcome.OK
    assert result.message


def test_a_task_without_an_example_is_not_measured() -> None:
    def nothing(task: Task) -> Example:
        raise MemoryError("too large")

    with make_runner(examples=nothing) as runner:
        (result,) = measured(runner, "right")
    assert result.outcome is Outcome.RUN_ERROR
    assert "no example of the task: MemoryError: too large" in result.message


def test_what_is_built_ahead_is_not_lowered_again(
    runner: CudaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[Candidate] = []

    def lower(candidate: Candidate, bench: Bench) -> Lowered | Measured:
        lowered.append(candidate)
        return prepare.lower(candidate, bench)

    monkeypatch.setattr(runner_module, "lower", lower)
    faults = ("right", "is not compiled", "is not lowered", "wrong")
    runner.build_ahead([(double_task(), planted(fault)) for fault in faults], TARGET)
    assert len(lowered) == 4
    found = measured(runner, *faults, "also right")
    assert len(lowered) == 5
    assert [m.outcome.value for m in found] == [
        "ok", "build_error", "build_error", "wrong_answer", "ok"
    ]  # fmt: skip
    assert len(measured(runner, "right")) == len(lowered) - 5  # kept for one trial
