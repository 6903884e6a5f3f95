"""The fuzzer finds bugs: each of those that are planted, within a few graphs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.planted import BUGS

ROOT = Path(__file__).resolve().parents[2]
NAMES = list(BUGS)
PARTS = 3
"""Processes that share the bugs: starting one takes longer than finding one."""


def hunted(*arguments: str) -> dict[str, Any]:
    """What the fuzzer says about planted bugs."""
    command = [sys.executable, "tests/fuzz/run_planted.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_every_planted_bug_is_found(part: int) -> None:
    names = NAMES[part::PARTS]
    found = hunted(*names)
    assert {n: found[n]["kind"] in BUGS[n].kinds for n in names} == dict.fromkeys(names, True), (
        found
    )


def test_a_failure_is_made_small() -> None:
    name = "a_value_is_placed_in_a_smaller_output"
    found = hunted("--shrink", name)[name]
    assert found["nodes"] > 2
    assert found["left"] == 2
