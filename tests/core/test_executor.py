"""Executors give the same results; failures and cancelling are orderly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest

from whet.core import ray_executor
from whet.core.errors import WhetError
from whet.core.executor import Cancelled, Executor, LocalProcesses, Serial

EXECUTORS: list[Executor] = [Serial(), LocalProcesses(2)]


def square(n: int) -> int:
    return n * n


def refuse(n: int) -> int:
    raise ValueError(f"no {n}")


def die(n: int) -> int:
    os._exit(7)


@pytest.mark.parametrize("executor", EXECUTORS, ids=lambda e: type(e).__name__)
class TestExecutor:
    def test_results_come_in_order_with_progress(self, executor: Executor) -> None:
        seen: list[tuple[int, int]] = []
        results = executor.map(
            square, range(5), progress=lambda done, total: seen.append((done, total))
        )
        assert results == [0, 1, 4, 9, 16]
        assert seen == [(n, 5) for n in range(1, 6)]

    def test_nothing_to_do(self, executor: Executor) -> None:
        assert executor.map(square, []) == []

    def test_an_exception_arrives(self, executor: Executor) -> None:
        with pytest.raises(ValueError, match="no 3"):
            executor.map(refuse, [3])

    def test_cancelling_stops_the_rest(self, executor: Executor) -> None:
        cancel = Event()
        done: list[int] = []

        def stop(count: int, total: int) -> None:
            done.append(count)
            cancel.set()

        with pytest.raises(Cancelled):
            executor.map(square, range(50), progress=stop, cancel=cancel)
        assert len(done) <= 2


def test_a_dead_worker_is_reported() -> None:
    with pytest.raises(WhetError, match="WH1004 a worker process ended before its work was done"):
        LocalProcesses(1).map(die, [1])


class StartsTooSlowly:
    """In place of Ray: what its `init` raises when a node does not come up in time."""

    def is_initialized(self) -> bool:
        return False

    def init(self, *arguments: object, **options: object) -> None:
        raise Exception("The current node timed out during startup.\nmore")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (None, r"WH1006 a local Ray did not start: The current node timed out during startup\."),
        ("ray://far", "WH1006 no Ray cluster was reached at ray://far: The current node"),
    ],
)
def test_a_ray_that_does_not_start_is_reported(
    monkeypatch: pytest.MonkeyPatch, address: str | None, message: str
) -> None:
    monkeypatch.setattr(ray_executor, "_ray", StartsTooSlowly)
    with pytest.raises(WhetError, match=message):
        ray_executor.RayCluster(address).map(square, [1])


def test_workers_need_functions_they_can_import() -> None:
    with pytest.raises(TypeError, match="not defined at module level"):
        LocalProcesses(1).map(lambda n: n, [1])


def test_an_interrupt_ends_the_workers() -> None:
    """Ctrl-C reaches the process that hands out work; its workers do not go on."""
    script = (
        "import time\n"
        "from whet.core.executor import LocalProcesses\n"
        "if __name__ == '__main__':\n"
        "    print('begins', flush=True)\n"
        "    LocalProcesses(2).map(time.sleep, [600, 600])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    while len(workers := children(process.pid)) < 3:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    # Not at the very end: workers that were still starting complain as well.
    assert "KeyboardInterrupt" in errors.splitlines()
    # The tracker goes when it sees that its owner has gone, which nobody waits for.
    deadline = time.monotonic() + 60
    while alive := [pid for pid in workers if is_alive(pid)]:
        assert time.monotonic() < deadline, f"still running: {alive}"
        time.sleep(0.05)


def is_alive(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def children(pid: int) -> list[str]:
    """Two workers and the tracker of shared resources."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
