"""Replays: the same for the same code, and differences that can be read."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools.kernel_replay.compare import compare, described
from tools.kernel_replay.record import record_model
from tools.kernel_replay.store import PARTS, Kernel, Replay

ROOT = Path(__file__).parents[2]
MODEL, TARGETS = "GMM_0_b1", ["x86-64-v4", "aarch64-neon"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    replay = Replay(tmp_path_factory.mktemp("replay"))
    replay.write(record_model(MODEL, TARGETS, 2, replay.folder))
    return replay


def kernel(replay: Replay, name: str, **texts: str) -> Kernel:
    parts = {part: replay.keep(texts.get(part, f"the {part}\n")) for part in PARTS}
    return Kernel("x86-64-v3", "model", name, 1, parts)


def report(before: Replay, after: Replay, lines: int = 40, most: int = 20) -> list[str]:
    return list(described(compare(before, after), before, after, lines, most))


def test_a_kernel_is_kept_from_the_task_to_the_module(recorded: Replay) -> None:
    kernels = recorded.read()
    assert {k.target for k in kernels} == set(TARGETS)
    texts = {part: recorded.text(digest) for part, digest in kernels[0].parts.items()}
    assert texts["candidate"].startswith("spatial\npx ")
    assert "parallel" in texts["program"]
    assert "define" in texts["llvm"]


def test_the_same_code_gives_the_same_replay(recorded: Replay, tmp_path: Path) -> None:
    command = [sys.executable, "tools/replay.py", "write", tmp_path, "--only", f"{MODEL}$"]
    given = ["--targets", *TARGETS, "--jobs", "1"]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    subprocess.run([*command, *given], cwd=ROOT, check=True, env=environment, capture_output=True)
    assert compare(recorded, Replay(tmp_path)).is_empty
    assert report(recorded, Replay(tmp_path))[-1].endswith("changed: none; 0 gone, 0 new")


def test_a_change_is_shown_where_it_begins(tmp_path: Path) -> None:
    before, after = Replay(tmp_path / "a"), Replay(tmp_path / "b")
    before.write([kernel(before, "x"), kernel(before, "y", candidate="mr 4\nnv 2\n")])
    after.write([kernel(after, "x"), kernel(after, "y", candidate="mr 8\nnv 2\n", llvm="other")])
    text = report(before, after)
    assert "\n== another candidate: x86-64-v3 model y" in text
    assert [line for line in text if line[:1] in "+-"] == ["-mr 4", "+mr 8"]
    assert not any("another llvm" in line and "==" in line for line in text)
    assert text[-1] == "\n1 kernels equal; changed: 1 with another candidate; 0 gone, 0 new"


def test_equal_changes_are_shown_once(tmp_path: Path) -> None:
    before, after = Replay(tmp_path / "a"), Replay(tmp_path / "b")
    names = ["x", "y", "z"]
    before.write([kernel(before, n, llvm="old") for n in names])
    after.write([kernel(after, n, llvm="new") for n in names])
    text = report(before, after)
    assert text[0] == "\n== another llvm: x86-64-v3 model x and 2 more"
    assert sum("==" in line for line in text) == 1


def test_kernels_that_are_gone_and_new_are_named(tmp_path: Path) -> None:
    before, after = Replay(tmp_path / "a"), Replay(tmp_path / "b")
    before.write([kernel(before, "x")])
    after.write([replace(kernel(after, "x"), name="y")])
    assert report(before, after)[:2] == ["gone: x86-64-v3 model x", "new: x86-64-v3 model y"]


def test_long_differences_are_cut(tmp_path: Path) -> None:
    before, after = Replay(tmp_path / "a"), Replay(tmp_path / "b")
    before.write([kernel(before, n, llvm=f"old {n}\n" * 99) for n in "xyz"])
    after.write([kernel(after, n, llvm=f"new {n}\n" * 99) for n in "xyz"])
    text = report(before, after, lines=5, most=1)
    assert "... 194 more lines" in text
    assert "\n2 more changes" in text
