"""Messages where a model leaves something open: which input it is, and what to type."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import whet
from whet.core.errors import ModelError, UsageError


def windows(text: str) -> onnx.ModelProto:
    """A window of 256 over the last axis of `x`."""
    made = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[{text}] x) => (float[P, 4, Q] y)
        {{ axes = Constant<value_ints = [1]>() h = Unsqueeze(x, axes)  y = Conv(h, w) }}
    """)
    w = np.zeros((4, 1, 256), np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return made


def refusal(model: onnx.ModelProto, inputs: dict[str, Any] | None = None) -> str:
    with pytest.raises(UsageError) as raised:
        whet.compile(model, inputs, note=lambda message: None)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_shapes_that_were_assumed() -> None:
    shown = refusal(windows("batch, samples"))
    assert shown.startswith("WH2007 the model does not fit the shapes that were assumed for its")
    assert "a window of 256 does not fit into 1" in shown
    assert "input 'x' (batchxsamples) was taken as 1x1" in shown
    assert "hint: --input x=batchxsamples, with numbers for batch and samples;" in shown


def test_dimensions_without_a_name() -> None:
    model = windows("2, samples")
    model.graph.input[0].type.tensor_type.shape.dim[1].ClearField("dim_param")
    shown = refusal(model)
    assert "input 'x' (2x?) was taken as 2x1" in shown
    assert "hint: --input x=2x?, with numbers for ?" in shown


@pytest.mark.parametrize("given", [(3, 16), np.zeros((3, 16), np.float32)])
def test_shapes_that_were_given(given: Any) -> None:
    shown = refusal(windows("batch, samples"), {"x": given})
    assert shown.startswith("WH2007 the model does not fit the shapes that were given for its inp")
    assert "input 'x' (batchxsamples) was given as 3x16" in shown


def test_a_model_that_fits_no_shape_is_inconsistent() -> None:
    with pytest.raises(ModelError, match="a window of 256 does not fit into 16"):
        whet.compile(windows("3, 16"))


def test_a_value_that_is_needed() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[6] x, int64[2] sizes) => (float[P, Q] y) { y = Reshape(x, sizes) }
    """)
    shown = refusal(model)
    assert re.match(r"WH2005 .* depends on the value of 'sizes'", shown)
    assert "hint: --input sizes:=VALUE (a number or a list), or sizes=FILE.npy; in Python" in shown
    assert whet.compile(model, {"sizes": np.array([2, 3])}).outputs[0].shape == (2, 3)
