"""Importing whet is cheap, pulls in nothing heavy and opens no socket."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

HEAVY = {
    "cuda", "google", "lightgbm", "llvmlite", "onnx", "onnxruntime", "openvino", "ray", "rich",
    "torch", "typer", "z3",
}  # fmt: skip

MEASURE = """
import json, sys
import numpy
opened = []
sys.addaudithook(lambda event, args: opened.append(event) if event.startswith("socket.") else None)
before = set(sys.modules)
import whet
{more}
loaded = set(sys.modules) - before
tops = sorted({{name.partition(".")[0] for name in loaded}})
print(json.dumps({{"loaded": sorted(loaded), "modules": tops, "opened": opened}}))
"""


def measure(more: str = "") -> dict[str, Any]:
    code = MEASURE.format(more=more)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_import_is_cheap() -> None:
    """A few modules beyond NumPy: the rest comes when it is used."""
    loaded = measure()["loaded"]
    assert len(loaded) <= 5, loaded


def test_import_pulls_in_nothing_heavy_and_opens_no_socket() -> None:
    found = measure()
    assert HEAVY.isdisjoint(found["modules"])
    assert found["opened"] == []


def test_running_a_stored_model_needs_nothing_heavy() -> None:
    """`whet.load` is found without onnx: it must start fast and run where onnx is not."""
    found = measure("whet.load; whet.compile; whet.WhetError; whet.Graph")
    assert HEAVY.isdisjoint(found["modules"])
    assert found["opened"] == []


def test_the_runtime_needs_numpy_alone() -> None:
    rooms = ("arrays", "artifact", "executable", "signature")
    found = measure(f"import {', '.join(f'whet.runtime.{name}' for name in rooms)}")
    foreign = set(found["modules"]) - sys.stdlib_module_names - {"whet", "ml_dtypes"}
    assert not foreign
