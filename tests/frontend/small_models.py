"""Short ways to write ONNX models in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from whet.frontend.onnx import ImportedModel, import_model
from whet.frontend.onnx.staging import run_stages
from whet.graph.interpret import interpret

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node; `inputs` and `outputs` are names separated by spaces, `_` for one left out."""
    names = [["" if n == "_" else n for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *names, name=f"{op}_{outputs.split()[0]}", **attributes)


def tensor(name: str, dims: Sequence[Any] | None = None, dtype: int = F32) -> Any:
    return helper.make_tensor_value_info(name, dtype, dims)


def graph(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    values: Sequence[Any] = (),
) -> Any:
    initial = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    return helper.make_graph(nodes, "g", inputs, outputs, initial, value_info=values)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    values: Sequence[Any] = (),
    opset: int = 18,
    functions: Sequence[Any] = (),
    domains: Mapping[str, int] | None = None,
) -> Any:
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(d, v) for d, v in (domains or {}).items()]
    made = graph(nodes, inputs, outputs, constants, values)
    return helper.make_model(made, opset_imports=opsets, functions=functions, ir_version=10)


def run(made: Any, **inputs: Any) -> tuple[Any, ...]:
    """The model's results for the inputs, which are also the examples it is imported with."""
    return call(import_model(made, inputs), **inputs)


def call(imported: ImportedModel, **inputs: Any) -> tuple[Any, ...]:
    flat = imported.flatten([inputs[port.name] for port in imported.arguments])
    return run_stages(imported, flat, interpret)
