"""Small models for the tests of the Python interface."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

LINEAR = """
    <ir_version: 8, opset_import: ["" : 17]>
    linear (float[N, 4] x, float[4, 3] w) => (float[N, 3] y, float[N, 3] z)
    { y = MatMul(x, w)  z = Relu(y) }
"""


@pytest.fixture
def linear() -> onnx.ModelProto:
    """y = x @ w and z = relu(y), with an open batch size."""
    return onnx.parser.parse_model(LINEAR)


@pytest.fixture
def linear_path(linear: onnx.ModelProto, tmp_path: Path) -> Path:
    path = tmp_path / "linear.onnx"
    path.write_bytes(linear.SerializeToString())
    return path


@pytest.fixture
def notes() -> list[str]:
    """Collects notes: pass `note=notes.append`."""
    return []
