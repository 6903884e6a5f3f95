"""Importing whet is cheap, pulls in nothing heavy, and opens no socket."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "lightgbm",
    "llvmlite",
    "onnx",
    "onnxruntime",
    "openvino",
    "ray",
    "rich",
    "torch",
    "typer",
    "z3",
)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_heavy_is_imported() -> None:
    loaded = run(f"import sys, whet; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert loaded == "[]"


def test_the_runtime_needs_numpy_alone() -> None:
    modules = "whet.runtime.executable, whet.runtime.artifact"
    loaded = run(f"import sys, {modules}; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert loaded == "[]"


def test_no_socket_is_opened() -> None:
    code = """
import sys

def watch(event, args):
    if event.startswith("socket."):
        raise SystemExit(event)

sys.addaudithook(watch)
import whet
whet.compile, whet.load, whet.Graph
"""
    run(code)


def test_importing_costs_little_beyond_numpy() -> None:
    code = """
import time
import numpy
start = time.perf_counter()
import whet
print(time.perf_counter() - start)
"""
    # The best of several runs: other processes may be using the machine.
    assert min(float(run(code)) for _ in range(5)) <= 0.1
