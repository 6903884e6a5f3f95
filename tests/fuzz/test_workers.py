"""Processes that crash or hang cost one item each, and it is known which.

The workers are forked, which a process with threads must not do: a program of its own runs them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import ctypes, json, os, sys, time
from tools.graph_fuzz.workers import Died, run_isolated

def work(item, stage):
    stage("thinking")
    if item == 3:
        stage("falling")
        ctypes.string_at(0)
    if item == 5:
        time.sleep(60)
    if item == 8:
        os._exit(3)
    return {"twice": 2 * item}

found = {}
for item, result in run_isolated(work, range(12), jobs=2, timeout=2.0, per_child=4):
    died = isinstance(result, Died)
    found[item] = [result.hung, result.stage, result.reason] if died else result
print(json.dumps(found))
"""


def test_what_dies_is_named_and_the_rest_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, text=True,
                          capture_output=True, check=True)  # fmt: skip
    found = json.loads(done.stdout)
    assert found.pop("3") == [False, "falling", "SIGSEGV"]
    assert found.pop("5") == [True, "thinking", "no answer in time"]
    assert found.pop("8") == [False, "thinking", "exit status 3"]
    assert found == {str(n): {"twice": 2 * n} for n in range(12) if n not in (3, 5, 8)}


SLOW_READER = """
import time
from tools.graph_fuzz.workers import Died, run_isolated

def work(item, stage):
    time.sleep(0.1)
    return {"item": item}

for item, result in run_isolated(work, range(8), jobs=2, timeout=0.5, per_child=4):
    assert not isinstance(result, Died), (item, result)
    if item == 0:
        time.sleep(1.0)
"""


def test_nobody_hangs_while_results_are_not_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW_READER], cwd=ROOT, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
