"""--precision: what numbers of single precision are computed with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Whet = Callable[..., Any]
SHAPE = ("--input", "x=4x8")


@pytest.mark.parametrize("command", ["run", "check", "bench", "tune", "inspect"])
def test_a_processor_has_one_precision(
    whet: Whet, model: Path, records: Path, command: str
) -> None:
    done = whet(command, model, *SHAPE, "--precision", "tf32", "--target", "cpu", "-q")
    assert done.returncode == 2
    assert "has no precision 'tf32'" in done.stderr
    done = whet(command, model, *SHAPE, "--precision", "half", "-q")
    assert done.returncode == 2
    assert "there is no precision 'half'" in done.stderr


def test_the_strict_one_is_everywhere(whet: Whet, model: Path, tmp_path: Path) -> None:
    stored = tmp_path / "m.whet"
    done = whet("compile", model, *SHAPE, "--precision", "fp32", "--target", "cpu", "-o", stored,
                "--json", "-q")  # fmt: skip
    assert json.loads(done.stdout)["precision"] == "fp32"
    done = whet("check", stored, "--json", "-q")
    assert json.loads(done.stdout)["tolerance"] == "0.0001 of the range"
    done = whet("run", stored, "--precision", "tf32", "-q")
    assert done.returncode == 2
    assert f"'{stored}' was compiled with --precision fp32" in done.stderr


@pytest.mark.cuda
def test_kernels_are_shown_in_their_precision(whet: Whet, model: Path) -> None:
    done = whet("inspect", model, *SHAPE, "--target", "cuda-sm_90a", "--precision", "fp16", "-q")
    assert done.returncode == 0, done.stderr
    assert "precision fp16: numbers in f16, sums in f32" in done.stdout
