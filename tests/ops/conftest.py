"""One ONNX node, run by whet and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from whet.core.types import Array
from whet.integrate.onnx_backend import run_model

Inputs = Sequence[Array | tuple[str, Array] | None]


def node_model(
    op_type: str, inputs: Inputs, opset: int, outputs: int, attributes: dict[str, Any]
) -> tuple[onnx.ModelProto, list[Array]]:
    """A model of one node, and the arrays to call it with.

    An array is an input, ("constant", array) an initializer, None an input that is left out.
    """
    names, infos, constants, arrays = [], [], [], []
    for n, item in enumerate(inputs):
        name = "" if item is None else f"x{n}"
        names.append(name)
        if isinstance(item, tuple):
            constants.append(numpy_helper.from_array(item[1], name))
        elif item is not None:
            kind = helper.np_dtype_to_tensor_dtype(item.dtype)
            infos.append(helper.make_tensor_value_info(name, kind, item.shape))
            arrays.append(item)
    results = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    declared = [onnx.ValueInfoProto(name=r) for r in results]
    graph = helper.make_graph([node], "g", infos, declared, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    return model, arrays


@pytest.fixture
def whet_node() -> Callable[..., list[Array]]:
    """whet_node(op_type, inputs, opset=, outputs=, **attributes): the results of whet."""

    def run(
        op_type: str, inputs: Inputs, opset: int = 19, outputs: int = 1, **attributes: Any
    ) -> list[Array]:
        model, arrays = node_model(op_type, inputs, opset, outputs, attributes)
        return [np.asarray(r) for r in run_model(model, arrays)]

    return run


@pytest.fixture
def same_as_onnxruntime() -> Callable[..., None]:
    """Like `whet_node`, but compares with ONNX Runtime (values, shapes and types)."""

    def compare(
        op_type: str,
        inputs: Inputs,
        opset: int = 19,
        outputs: int = 1,
        atol: float = 1e-5,
        **attributes: Any,
    ) -> None:
        model, arrays = node_model(op_type, inputs, opset, outputs, attributes)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        feeds = {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
        shown = f"{op_type} {attributes} on {[a.shape for a in arrays]}"
        for got, expected in zip(run_model(model, arrays), session.run(None, feeds), strict=True):
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), shown
            np.testing.assert_allclose(got, expected, atol=atol, rtol=1e-5, err_msg=shown)

    return compare
