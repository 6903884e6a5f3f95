"""Where rules are found and proved changes nothing: the same files, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


RAY = ("--executor", "ray", "--workers", "2")


def written_files(folder: Path, *arguments: str) -> dict[str, bytes]:
    command = [sys.executable, "-m", "whet", "rules", *arguments,
               "--write", str(folder / "out"), "--quiet"]  # fmt: skip
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return {p.name: p.read_bytes() for p in sorted((folder / "out").iterdir())}


def proved_files(folder: Path, *options: str) -> dict[str, bytes]:
    (folder / "rules.txt").write_text(RULES)
    return written_files(folder, "verify", str(folder / "rules.txt"), *options)


def found_files(folder: Path, *options: str) -> dict[str, bytes]:
    """The rules of size 2 over matrices; with a folder for parts, workers do even one part."""
    parts = ("--resume", str(folder / "parts"))
    return written_files(folder, "generate", "--size", "2", "--pool", "matrices", *parts, *options)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = proved_files(tmp_path_factory.mktemp("here"))
    assert set(files) == {f"{family}.{kind}" for family in ("matmul", "movement")
                          for kind in ("rules", "proofs")}  # fmt: skip
    return files


def test_processes(here: dict[str, bytes], tmp_path: Path) -> None:
    assert proved_files(tmp_path, "--workers", "2") == here


def test_ray(here: dict[str, bytes], tmp_path: Path) -> None:
    assert proved_files(tmp_path, *RAY) == here


# ------------------------------------------------------------------------------------ generating
@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = found_files(tmp_path_factory.mktemp("found"))
    assert "matmul.rules" in files
    return files


def test_processes_find_the_same(found: dict[str, bytes], tmp_path: Path) -> None:
    assert found_files(tmp_path, "--workers", "2") == found


def test_ray_finds_the_same(found: dict[str, bytes], tmp_path: Path) -> None:
    assert found_files(tmp_path, *RAY) == found


def test_another_seed_finds_the_same_set(found: dict[str, bytes], tmp_path: Path) -> None:
    other = found_files(tmp_path, "--seed", "1")
    assert other != found, "the seed is in the certificates"
    assert stated(other) == stated(found)


def stated(files: dict[str, bytes]) -> set[str]:
    """Rules without their certificates."""
    rules = "\n".join(text.decode() for text in files.values()).split("\n\n")
    kept = ("rule", "lhs", "rhs", "when", "set", "numeric")
    return {
        "\n".join(
            line for line in rule.splitlines() if line.split()[:1] and line.split()[0] in kept
        )
        for rule in rules
    }
