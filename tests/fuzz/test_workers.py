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
for item, result in run_isolated(work, range(12), jobs=2, timeout=5.0, per_child=4):
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
import os, sys, time, types
from pathlib import Path
from tools.graph_fuzz import workers

clock = types.SimpleNamespace(ahead=0.0, monotonic=lambda: time.monotonic() + clock.ahead)
workers.time = clock
folder = Path(sys.argv[1])
tell = lambda name: (folder / name).touch()

def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.005)

def work(item, stage):
    if item == 4:  # the first of the second child
        tell("begun")
        wait_for("go")
    if item in (0, 1):
        wait_for({0: "begun", 1: "seen"}[item])
    return {"item": item}

def has_ended(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

def wait_for_children():
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    while not all(map(has_ended, own.read_text().split())):
        time.sleep(0.005)

found = []
for item, result in workers.run_isolated(work, range(8), jobs=2, timeout=100.0, per_child=4):
    assert not isinstance(result, workers.Died), (item, result)
    found.append(item)
    if item == 0:
        tell("seen")
    if item == 1:  # the fourth has begun, and now all answer before anybody looks at the clock
        tell("go")
        wait_for_children()
        clock.ahead = 1000.0
assert sorted(found) == list(range(8))
"""


def test_nobody_hangs_while_results_are_not_asked_for(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SLOW_READER, str(tmp_path)], cwd=ROOT, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
