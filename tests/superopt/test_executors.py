"""Where the gates run changes nothing: the same files, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("z3")

RULES = """
rule associate
  a activation 2
  b weight 2
  c weight 2
  lhs matmul(matmul(a, b), c)
  rhs matmul(a, matmul(b, c))

rule relu-concat
  x activation 2
  y activation 2
  lhs concat(relu(x), relu(y), axis=k)
  rhs relu(concat(x, y, axis=k))
"""


def proved_files(folder: Path, *options: str) -> dict[str, bytes]:
    (folder / "rules.txt").write_text(RULES)
    command = [sys.executable, "-m", "whet.cli.main", "rules", "verify", str(folder / "rules.txt"),
               "--write", str(folder / "out"), "--quiet", *options]  # fmt: skip
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return {p.name: p.read_bytes() for p in sorted((folder / "out").iterdir())}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = proved_files(tmp_path_factory.mktemp("here"))
    assert set(files) == {"matmul.rules", "movement.rules"}
    return files


def test_processes(here: dict[str, bytes], tmp_path: Path) -> None:
    assert proved_files(tmp_path, "--workers", "2") == here


def test_ray(here: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert proved_files(tmp_path, "--executor", "ray", "--workers", "2") == here
