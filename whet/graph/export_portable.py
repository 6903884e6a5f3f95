"""Exported models in the oldest opset that says the same, for runtimes.

    AveragePool-19(dilations=[1, 1])     ->     AveragePool-11      in a model of opset 18

More runtimes read it, and ONNX Runtime has no fast code for the newest versions of some operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, defs, helper

from whet.graph.export import export_model
from whet.graph.export_operators import OPSET
from whet.graph.graph import Graph

OLD_OPSET, OLD_IR = 18, 8
OLD_TYPES = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
"""Element types that all versions of operators have."""

SAME = frozenset({
    "AveragePool", "Cast", "Equal", "Flatten", "Identity", "Pad", "Reshape", "Shape", "Size",
    "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators with a newer version that differs in element types and new attributes alone."""

NEEDLESS: Mapping[str, Callable[[Any], bool]] = {
    "dilations": lambda value: all(d == 1 for d in value),
    "saturate": lambda value: value == 1,
}
"""New attributes, and the values that say what older versions do."""


def portable_model(graph: Graph) -> onnx.ModelProto:
    """The graph as an ONNX model of opset 18 if that says the same, else as `export_model` does."""
    model = export_model(graph)
    known = len(model.opset_import) == 1 and _element_types(model) <= set(OLD_TYPES)
    if not known or not all(_has_older(node) for node in model.graph.node):
        return model
    for node in model.graph.node:
        kept = [a for a in node.attribute if a.name in _older(node).attributes]
        del node.attribute[:]
        node.attribute.extend(kept)
    model.opset_import[0].version = OLD_OPSET
    model.ir_version = OLD_IR
    return model


def _element_types(model: onnx.ModelProto) -> set[int]:
    """All element types that occur; nodes make others out of these only by a cast."""
    graph = model.graph
    ports = (v.type.tensor_type.elem_type for v in (*graph.input, *graph.output))
    casts = (a.i for n in graph.node if n.op_type == "Cast" for a in n.attribute if a.name == "to")
    return {*ports, *casts, *(t.data_type for t in graph.initializer)}


def _older(node: onnx.NodeProto) -> defs.OpSchema:
    return defs.get_schema(node.op_type, OLD_OPSET, "")


def _has_older(node: onnx.NodeProto) -> bool:
    """Whether an older version of the operator says the same."""
    if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
        return False  # its nodes would have to be looked at too
    if not defs.has(node.op_type, OLD_OPSET, ""):
        return False
    older = _older(node)
    newer = defs.get_schema(node.op_type, OPSET, "")
    if newer.since_version == older.since_version:
        return True
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type not in SAME or values.get("ceil_mode"):
        return False
    return all(
        name in older.attributes or (name in NEEDLESS and NEEDLESS[name](value))
        for name, value in values.items()
    )
