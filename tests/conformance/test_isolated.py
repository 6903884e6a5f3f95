"""Work in processes that may crash or hang: every item is accounted for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, signal, sys, time
from tools.isolated import Died, each_isolated

def work(item):
    if item in ("segfault", "abort"):
        os.kill(os.getpid(), {"segfault": signal.SIGSEGV, "abort": signal.SIGABRT}[item])
    if item == "hang":
        time.sleep(600)
    if item == "raise":
        raise ValueError("unexpected")
    return {"item": item}

items = sys.argv[2:]
found = dict(each_isolated(work, items, processes=int(sys.argv[1]), seconds=3.0))
assert sorted(found) == list(range(len(items)))
for number, answer in sorted(found.items()):
    print(answer.status + ": " + answer.detail if isinstance(answer, Died) else answer["item"])
"""


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_an_item_costs_nothing_but_itself(processes: int) -> None:
    """Forked from a process of its own, which has one thread."""
    items = ["a", "segfault", "b", "hang", "abort", "raise", "c"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(processes), *items],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "a", "crash: died of SIGSEGV", "b", "hang: no answer within 3 s", "crash: died of SIGABRT",
        "crash: ended with code 1", "c",
    ], done.stderr  # fmt: skip


def test_nothing_to_do() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, "2"], cwd=ROOT, check=False)
    assert done.returncode == 0
