"""Running the command line as a user does, and a model to run it on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from whet.cli.main import main

# Scripts in bench/ import each other by short names, as they do when they are run.
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def whet(capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Runs `whet ARGUMENTS` in this process, which saves the time to start another."""

    def run(*arguments: object) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        captured = capfd.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def whet_process() -> Callable[..., Result]:
    """Runs `whet ARGUMENTS` in a process of its own; `env` adds environment variables."""

    def run(*arguments: object, env: dict[str, str] | None = None) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "whet", *map(str, arguments)],
            capture_output=True,
            text=True,
            env=os.environ | (env or {}),
            timeout=120,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network: y = relu(x @ w), and the position of the largest element of each row."""
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 8] x) => (float[N, 32] y, int64[N] best)
        { h = MatMul(x, w)  y = Relu(h)  best = ArgMax<axis = 1, keepdims = 0>(y) }
    """)
    w = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a network of the benchmarks, in small."""
    from zoo.reduced import REDUCED

    folder = tmp_path_factory.mktemp("networks")

    def write(name: str) -> Path:
        path = folder / f"{name}.onnx"
        if not path.exists():
            path.write_bytes(REDUCED[name]().SerializeToString())
        return path

    return write
