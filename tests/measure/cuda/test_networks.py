"""Networks on a GPU that is made up: timed as they run; whatever a kernel does is an outcome."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.measure.cuda.fake_gpu import SIZE, floats
from tests.measure.cuda.fake_networks import (
    WEIGHTS,
    NeighbourDriver,
    code,
    job,
    network,
)
from whet.core.dtypes import parse_dtype
from whet.core.outcomes import Outcome
from whet.measure.cuda import network_bench as bench_module
from whet.measure.cuda.network_bench import NetworkBench
from whet.measure.cuda.network_jobs import NetworkJob, Piece, network_from_message
from whet.measure.cuda.run_worker import RunWorker
from whet.measure.cuda.runner import CudaRunner

ALIKE = ("right",) * 4
APART = ("right", "also right") * 2
"""Slower kernels one by one, and a faster network."""


@pytest.fixture(scope="module")
def runner() -> Iterator[CudaRunner]:
    with CudaRunner(
        build_processes=1,
        worker="tests.measure.cuda.fake_networks",
        compiler="tests.measure.cuda.fake_compiler",
    ) as made:
        yield made


def test_jobs_survive_messages() -> None:
    made = job("right", "also right")
    assert network_from_message(made.to_message()) == made


# ------------------------------------------------------------------------------------ processes
def test_networks_take_turns(runner: CudaRunner) -> None:
    result = runner.compare_networks("n", network(*APART), network(*ALIKE), 0.01)
    assert result.outcome is Outcome.OK
    assert result.better
    assert result.ratio == pytest.approx(6 / 19)
    assert np.median(result.candidate) == pytest.approx(6e-6)
    assert not runner.compare_networks("n", network(*ALIKE), network(*APART), 0.01).better
    assert not runner.compare_networks("n", network(*ALIKE), network(*ALIKE), 0.01).better


@pytest.mark.parametrize(
    ("fault", "outcome", "message"),
    [
        ("dies", Outcome.CRASH, "the process ended with code 3"),
        ("fails for good", Outcome.CRASH, "ILLEGAL_ADDRESS"),
        ("hangs", Outcome.RUN_TIMEOUT, "a call took more than"),
    ],
)
def test_what_a_kernel_does_is_an_outcome(
    runner: CudaRunner, monkeypatch: pytest.MonkeyPatch, fault: str, outcome: Outcome, message: str
) -> None:
    monkeypatch.setattr(runner.times, "first", 0.1)
    result = runner.compare_networks(fault, network("right", fault), network(*ALIKE), 0.01)
    assert result.outcome is outcome, result
    assert message in result.message
    assert not result.better
    assert runner.compare_networks(fault, network(*APART), network(*ALIKE), 0.01).better


def test_a_network_that_is_far_too_slow_is_given_up(runner: CudaRunner) -> None:
    runner.times.seconds["network", "slow"] = 1e-9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whet.measure.trials.LEAST_LIMIT_SECONDS", 0.0)
        result = runner.compare_networks("slow", network(*APART), network(*ALIKE), 0.01)
    assert result.outcome is Outcome.RUN_TIMEOUT
    assert "the limit is 2e-08 s" in result.message


# --------------------------------------------------------------------------------------- memory
def floats_of(piece: Piece, address: int) -> np.ndarray:
    room = (ctypes.c_ubyte * piece.nbytes).from_address(address)
    return np.frombuffer(room, np.uint8).view(parse_dtype(piece.dtype).numpy)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i64", "bool"])
def test_memory_holds_numbers_that_are_finite_and_indices_that_there_are(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(bench_module, "BLOCK_BYTES", 1024)
    piece = Piece("weights", 8 * 500, dtype)
    made = NetworkBench(NeighbourDriver()).load(job("right", weights=piece), code("right"))
    arena, x, weights = made.memory
    assert not any((ctypes.c_ubyte * arena.nbytes).from_address(arena.address))
    assert np.isfinite(floats(x.address, SIZE)).all()
    values = floats_of(piece, weights.address)
    if parse_dtype(dtype).is_float:
        assert np.isfinite(values.astype(np.float64)).all()
        assert len(np.unique(values[-100:].astype(np.float64))) > 10
        assert np.abs(values.astype(np.float64)).max() <= 0.101  # rounded
    else:
        assert not values.any()


def test_networks_share_what_they_have_in_common() -> None:
    driver = NeighbourDriver()
    bench = NetworkBench(driver)
    first = bench.load(job("right", "also right"), code("right", "also right"))
    second = bench.load(job("also right", "right"), code("right", "also right"))
    assert first.memory[1:] == second.memory[1:]
    assert first.memory[0] is not second.memory[0]
    assert len(driver.ops("load")) == 2
    assert bench.load(job("right", "also right"), {}) is first


class Played:
    """A worker in this process."""

    def __init__(self) -> None:
        self.driver = NeighbourDriver()
        self.worker = RunWorker(self.driver)
        for name, data in code("right", "also right", "fails for good").items():
            self.worker.handle({"do": "hold", "key": name}, [data], lambda message: None)

    def compare(self, *jobs: NetworkJob) -> str:
        answers: list[dict[str, Any]] = []
        message = {"do": "compare_networks", "seconds": 0.01, "limit": 1.0,
                   "jobs": [j.to_message() for j in jobs]}  # fmt: skip
        self.worker.handle(message, [], lambda message, arrays=(): answers.append(message))
        return str(answers[-1]["outcome"])


def test_what_stays_is_not_loaded_again_and_the_rest_is_given_back() -> None:
    played = Played()
    old = job("right", "right")
    assert played.compare(job("right", "also right"), old) == "ok"
    assert len(played.driver.ops("capture")) == 2
    assert played.compare(job("also right", "right"), old) == "ok"
    assert len(played.driver.ops("capture")) == 3
    assert len(played.driver.ops("load")) == 2
    assert played.compare(old, old) == "ok"
    assert len(played.driver.ops("discard")) == 2
    assert played.driver.ops("unload") == [("unload", "also right")]
    other = Piece("other weights", WEIGHTS.nbytes, "f32")
    assert played.compare(job("right", "right", weights=other), old) == "ok"
    held = len(played.driver.memory)
    assert played.compare(old, old) == "ok"
    assert len(played.driver.memory) == held - 2  # the other weights, and working memory


def test_kernels_that_await_their_inputs_start_early() -> None:
    played = Played()
    assert played.compare(job("right"), job("right", "also right")) == "ok"
    captured = [entry[1] for entry in played.driver.ops("capture")]
    assert captured == [(("k0_0", True),), (("k0_0", True), ("k1_0", True))]


def test_a_failure_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    before = len(played.driver.memory)
    monkeypatch.setattr(played.driver, "refused_bytes", 100)
    assert played.compare(job("right"), job("also right")) == "run_error"
    assert len(played.driver.memory) == before
    assert len(played.driver.ops("load")) == len(played.driver.ops("unload"))
    monkeypatch.undo()
    assert played.compare(job("right"), job("also right")) == "ok"
