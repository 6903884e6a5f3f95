"""The processes behind measuring: what they refuse, and that none is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.measure.planted import TARGET, double_task
from whet.codegen.llvm.generator import LlvmGenerator
from whet.core.errors import WhetError
from whet.core.outcomes import Outcome
from whet.measure import builder as builder_module, kernel_process as process_module
from whet.measure.builder import Builder, start_worker
from whet.measure.cpu.measurer import Measurer
from whet.measure.process import WorkerProcess
from whet.measure.results import Candidate

ROOT = Path(__file__).resolve().parents[2]
RIGHT = [Candidate("planted", {"fault": 0})]


def job(ir: str) -> dict[str, str]:
    return LlvmGenerator(TARGET).job(ir)


GOOD = job("define void @kernel(ptr %t) { ret void }")


def long_job() -> dict[str, str]:
    """One block with so many instructions that compiling takes a while."""
    lines = [f"  %v{n + 1} = mul i64 %v{n}, %v{n}" for n in range(20_000)]
    body = "\n".join(["define i64 @kernel(i64 %v0) {", *lines, "  ret i64 %v20000", "}"])
    return job(body)


@pytest.fixture
def builder() -> Iterator[Builder]:
    made = Builder("whet.measure.cpu.build_worker", 2)
    yield made
    made.close()


def test_ill_formed_code_is_an_outcome(builder: Builder) -> None:
    bad, good = builder.build([job("define void @kernel("), GOOD])
    assert bad.outcome is Outcome.BUILD_ERROR
    assert "error" in bad.message or "expected" in bad.message
    assert good.outcome is Outcome.OK
    assert good.data


def test_building_too_long_is_an_outcome(builder: Builder) -> None:
    builder.build([GOOD, GOOD])  # the processes are there
    builder.seconds = 0.01
    (late,) = builder.build([long_job()])
    assert late.outcome is Outcome.BUILD_TIMEOUT
    builder.seconds = 15.0
    assert builder.build([GOOD])[0].outcome is Outcome.OK


def test_builders_are_used_again_and_recycled(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.processes = 1
    builder.build([GOOD])
    first = builder._idle[0]
    builder.build([GOOD])
    assert builder._idle == [first]
    monkeypatch.setattr(builder_module, "JOBS_PER_PROCESS", 3)
    builder.build([GOOD])
    assert builder._idle == []
    assert first.process.returncode is not None


def test_a_process_that_cannot_start_is_a_clear_error() -> None:
    with pytest.raises(WhetError, match="cannot be started") as failed:
        start_worker("whet.measure.no_such_module")
    assert failed.value.code == "WH1004"
    assert "No module named" in str(failed.value)


def test_builders_start_side_by_side(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes are started before the first one is waited for."""
    order: list[str] = []

    class Watched(WorkerProcess):
        def __init__(self, module: str) -> None:
            order.append("start")
            super().__init__(module)

        def receive(self, seconds: float) -> Any:
            order.append("wait")
            return super().receive(seconds)

    monkeypatch.setattr(builder_module, "WorkerProcess", Watched)
    assert [b.outcome for b in builder.build([GOOD] * 3)] == [Outcome.OK] * 3
    assert order[:3] == ["start", "start", "wait"]
    assert order.count("start") == 2


def test_a_builder_that_cannot_start_is_a_clear_error() -> None:
    with closing(Builder("whet.measure.no_such_module", 2)) as broken:
        for _ in range(2):
            with pytest.raises(WhetError, match="cannot be started: it ended") as failed:
                broken.build([GOOD, GOOD])
            assert failed.value.code == "WH1004"
            assert not broken._busy
            assert not broken._starting


@pytest.mark.usefixtures("planted_sketch")
def test_the_runner_is_recycled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "JOBS_PER_PROCESS", 2)
    with Measurer(build_processes=1) as measurer:
        results = measurer.measure(double_task(), RIGHT * 5, 1, TARGET)
        assert all(r.ok for r in results)
        assert measurer.runner.starts == 3


@pytest.mark.usefixtures("planted_sketch")
def test_arrays_are_forgotten_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "MOST_HELD_BYTES", 1000)
    with Measurer(build_processes=1) as measurer:
        for size in (100, 101, 100):
            (result,) = measurer.measure(double_task(size), RIGHT, 1, TARGET)
            assert result.ok
        assert sum(measurer.runner._held.values()) <= 1000


DRIVER = """
import sys
from tests.measure.planted import FAULTS, TARGET, double_task, plant
from whet.measure.cpu.measurer import Measurer
from whet.measure.results import Candidate

plant()
hangs = Candidate("planted", {"fault": list(FAULTS).index("hangs")})
with Measurer(build_processes=1, first_limit=600.0) as measurer:
    measurer.measure(double_task(), [Candidate("planted", {"fault": 0})], 1, TARGET)
    measurer.times.seconds.clear()
    pids = [measurer.runner._worker.process.pid, measurer.builder._idle[0].process.pid]
    print(*pids, flush=True)
    measurer.measure(double_task(), [hangs], 1, TARGET)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_its_driver(how: signal.Signals) -> None:
    """Interrupted or killed while a kernel hangs, the driver leaves nothing running."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.5)  # now the kernel is running
    driver.send_signal(how)
    driver.wait(timeout=120)
    driver.stdout.close()
    end = time.monotonic() + 20
    while any(map(is_running, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        # A zombie that nobody has collected yet does not run any more.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False
