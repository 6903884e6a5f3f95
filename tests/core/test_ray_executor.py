"""A local Ray gives the same results as other executors, and ends with its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

ROOT = Path(__file__).resolve().parents[2]
HANGS_SECONDS = 60.0


@pytest.fixture(scope="module")
def mark() -> str:
    """A variable that the driver and all processes it starts have in their environment."""
    return f"WHET_TEST_RAY_{uuid4().hex}"


@pytest.fixture(scope="module")
def found(mark: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("ray") / "answer.json"
    command = [sys.executable, "-m", "tests.core.ray_driver", str(path)]
    environment = os.environ | {mark: "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(path.read_text())
    return answer


def test_results_come_in_order_with_progress(found: dict[str, Any]) -> None:
    assert found["results"] == [0, 1, 4, 9, 16]
    assert found["progress"] == [[n, 5] for n in range(1, 6)]
    assert found["nothing"] == []


def test_what_goes_wrong_arrives(found: dict[str, Any]) -> None:
    assert found["refused"] == "ValueError: no 3"
    assert "WH1004 a worker of the Ray cluster ended before its work was done" in found["died"]
    assert found["afterwards"] == [49]


def test_cancelling_stops_the_rest(found: dict[str, Any]) -> None:
    assert found["cancelled"]
    assert found["before_cancelling"] <= 2


@pytest.mark.usefixtures("found")
def test_nothing_is_left_running(mark: str) -> None:
    end = time.monotonic() + HANGS_SECONDS
    while left := processes_with(mark):
        assert time.monotonic() < end, f"still running: {left}"
        time.sleep(0.1)


def processes_with(variable: str) -> list[str]:
    """What runs with the variable in its environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (process / "environ").read_bytes():
                found.append((process / "comm").read_text().strip())
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


def test_the_mark_is_found() -> None:
    name = f"WHET_TEST_MARK_{uuid4().hex}"
    with subprocess.Popen(["sleep", "600"], env=os.environ | {name: "1"}) as sleeper:
        try:
            end = time.monotonic() + 10  # a process that has just begun has no environment yet
            while not processes_with(name) and time.monotonic() < end:
                time.sleep(0.05)
            assert processes_with(name) == ["sleep"]
        finally:
            sleeper.kill()
