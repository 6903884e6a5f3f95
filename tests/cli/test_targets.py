"""--target: building for another processor, and running it where that is possible."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.targets import FOREIGN, LEVELS
from whet.core.cpu import named_target
from whet.db.store import Database

Whet = Callable[..., Any]
SHAPE = ("--input", "x=4x8")


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_of_this_machine_runs(whet: Whet, model: Path, tmp_path: Path, name: str) -> None:
    done = whet("run", model, *SHAPE, "--target", name, "-q")
    assert done.returncode == 0, done.stderr
    assert f"(native for {name})" in done.stdout
    done = whet("check", model, *SHAPE, "--target", name, "--json", "-q")
    assert json.loads(done.stdout)["engine"] == f"native for {name}"
    stored = tmp_path / "m.whet"
    done = whet("compile", model, *SHAPE, "--target", name, "-o", stored, "--json", "-q")
    assert json.loads(done.stdout)["target"] == name
    document = json.loads(whet("run", stored, "--target", "cpu", "--json", "-q").stdout)
    assert document["target"] == "cpu"


@pytest.mark.parametrize("command", ["run", "check", "bench", "tune"])
def test_what_cannot_run_here_is_refused(
    whet: Whet, model: Path, records: Path, command: str
) -> None:
    done = whet(command, model, *SHAPE, "--target", FOREIGN, "-q")
    assert done.returncode == 2
    assert f"WH1305 code for {FOREIGN} cannot run on this machine" in done.stderr


def test_what_cannot_run_here_is_stored_and_shown(whet: Whet, model: Path, tmp_path: Path) -> None:
    stored = tmp_path / "m.whet"
    done = whet("compile", model, *SHAPE, "--target", FOREIGN, "-o", stored, "-q")
    assert done.returncode == 0, done.stderr
    assert f"native for {FOREIGN}" in done.stdout
    done = whet("inspect", model, *SHAPE, "--target", FOREIGN, "--kernel", "0", "-q")
    assert "fmla" in done.stdout or "vfmadd" in done.stdout


def test_other_runtimes_run_beside_a_target(whet: Whet, model: Path) -> None:
    done = whet("bench", model, *SHAPE, "--target", LEVELS[0], "--seconds", "0.05", "--against",
                "none", "--json", "-q")  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["target"] == LEVELS[0]
    assert [r["runtime"] for r in document["runtimes"]] == ["whet"]


def test_records_belong_to_the_target(whet: Whet, model: Path, records: Path) -> None:
    done = whet("tune", model, *SHAPE, "--target", LEVELS[0], "--trials", 2, "--threads", 1, "-q")
    assert done.returncode == 0, done.stderr
    with Database(records) as database:
        assert database.has_records(named_target(LEVELS[0]), 1)
        assert not database.has_records(named_target("cpu"), 1)


def test_the_setting_reaches_every_process(whet_process: Whet, model: Path) -> None:
    done = whet_process("run", model, *SHAPE, "--json", "-q", env={"WHET_TARGET": LEVELS[0]})
    assert json.loads(done.stdout)["target"] == LEVELS[0]
    done = whet_process("run", model, *SHAPE, env={"WHET_TARGET": "z80"})
    assert done.returncode == 2
    assert "WH1002 no target is named 'z80'" in done.stderr
