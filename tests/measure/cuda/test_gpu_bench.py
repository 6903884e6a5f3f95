"""Timing on a GPU that is made up: graphs of calls, each with constants of its own."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.measure.cuda.fake_gpu import FIRST, NAMES, SIZE, FakeDriver
from whet.codegen.cuda.launch import Launch
from whet.core.types import Array
from whet.measure.builder import Builder
from whet.measure.cuda import gpu_bench as bench_module
from whet.measure.cuda.gpu_bench import GpuBench, LoadedKernel
from whet.measure.cuda.jobs import MOST_COPIES, Check, GpuJob, job_from_message
from whet.measure.cuda.run_worker import RunWorker
from whet.measure.parameters import contiguous

X = np.arange(SIZE, dtype=np.float32)
HELD: dict[str, Array] = {"x.whole": X, "y.whole": 2 * X, "w.whole": np.full(1000, 7.0, np.float32)}


def job(*, awaits: bool = True, launches: int = 1) -> GpuJob:
    parameters = (
        contiguous("input", "x", "f32", (SIZE,)), contiguous("output", "y", "f32", (SIZE,)),
        contiguous("constant", "w", "f32", (1000,)),
    )  # fmt: skip
    made = [Launch(f"k_{n}", 4, 1, 32, 0, awaits) for n in range(launches)]
    return GpuJob(tuple(made), True, parameters, (0, 1, 2), (Check("whole", "exact"),))


def cubin(fault: str) -> bytes:
    return str(FIRST + NAMES.index(fault)).encode()


def checked(driver: FakeDriver, made: GpuJob) -> tuple[GpuBench, LoadedKernel]:
    bench = GpuBench(driver)
    kernel = bench.load(made, cubin("right"))
    bench.check(kernel, HELD, lambda: None, 1.0)
    return bench, kernel


def test_jobs_survive_messages() -> None:
    made = job(launches=2)
    assert job_from_message(made.to_message()) == made


@pytest.fixture
def long_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs have as many calls as they may, however slow this machine's fake kernels are."""
    monkeypatch.setattr(bench_module, "GRAPH_SECONDS", 1e6)


@pytest.mark.usefixtures("long_graphs")
def test_every_call_has_a_copy_of_the_constants() -> None:
    bench, kernel = checked(FakeDriver(), job())
    clock, count = bench.clock(kernel)
    assert count == bench_module.MOST_CALLS
    (recording,) = kernel.recordings
    tables = [list(k.parameters.addresses) for k in recording.kernels]
    assert len({x for x, _, _ in tables}) == len({y for _, y, _ in tables}) == 1
    constants = {w for _, _, w in tables}
    assert len(constants) == MOST_COPIES
    for address in constants:
        copy = (ctypes.c_float * 1000).from_address(address)
        np.testing.assert_array_equal(np.ctypeslib.as_array(copy), HELD["w.whole"])
    assert clock(3) == pytest.approx(3 * count * 1e-6)


@pytest.mark.usefixtures("long_graphs")
def test_copies_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "MOST_COPY_BYTES", 15_000)
    bench, kernel = checked(FakeDriver(), job())
    bench.clock(kernel)
    tables = [list(k.parameters.addresses) for k in kernel.recordings[0].kernels]
    assert len({w for _, _, w in tables}) == 3


def test_graphs_of_slow_kernels_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "GRAPH_SECONDS", 1e-9)
    bench, kernel = checked(FakeDriver(), job())
    assert bench.clock(kernel)[1] == 1


@pytest.mark.usefixtures("long_graphs")
@pytest.mark.parametrize("awaits", [True, False])
def test_kernels_that_await_their_inputs_start_early(awaits: bool) -> None:
    driver = FakeDriver()
    bench, kernel = checked(driver, job(awaits=awaits, launches=2))
    bench.clock(kernel)
    ((_, captured),) = driver.ops("capture")
    assert captured == (("k_0", awaits), ("k_1", awaits)) * bench_module.MOST_CALLS


def test_nothing_stays_on_the_gpu() -> None:
    driver = FakeDriver()
    worker = RunWorker(driver)
    for key, array in HELD.items():
        worker.handle({"do": "hold", "key": key}, [array], lambda message: None)
    answers: list[dict[str, Any]] = []
    message = {"do": "measure", "best": None, "limit": 1.0, "jobs": [job().to_message()]}
    for fault in ("right", "wrong", "right"):
        data = [np.frombuffer(cubin(fault), np.uint8)]
        worker.handle(message, data, lambda message, arrays=(): answers.append(message))
    ended = [a["outcome"] for a in answers if "outcome" in a]
    assert ended == ["ok", "wrong_answer", "ok"]
    del worker
    assert not driver.memory
    assert len(driver.ops("load")) == len(driver.ops("unload")) == 3
    assert len(driver.ops("capture")) == len(driver.ops("discard")) == 2


@pytest.mark.cuda
def test_code_is_compiled_in_a_process() -> None:
    builder = Builder("whet.measure.cuda.build_worker", 1)
    good = 'extern "C" __global__ void k_0(float* y) { y[0] = 1.0f; }'
    try:
        made, refused = builder.build(
            {"text": text, "architecture": "sm_90a"} for text in (good, good.replace("y[0]", "z"))
        )
    finally:
        builder.close()
    assert made.data is not None
    assert made.data[:4] == b"\x7fELF"
    assert refused.data is None
    assert 'identifier "z" is undefined' in refused.message
