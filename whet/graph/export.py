"""Any Graph as an ONNX model.

Operators become ONNX operators by the table in `export_operators`; composites that have no
counterpart are expanded first.  What ONNX cannot say at all becomes a node of the domain
`whet`, which the importer reads back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from whet import __version__
from whet.core.dtypes import DType
from whet.core.errors import GraphError, fail
from whet.core.types import Array, TensorType
from whet.graph.export_operators import EXPORTERS, NATIVE_DOMAIN, OPSET, export_native
from whet.graph.graph import Constant, Graph, Node, Value
from whet.graph.passes.expand_composites import expand_composites
from whet.graph.rewrite import everywhere
from whet.ops.base import OutputType

IR_VERSION = 10
"""The file format that belongs to opset 21."""

_ELEMENT_TYPES: dict[str, int] = {
    "f64": TensorProto.DOUBLE, "f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16, "i64": TensorProto.INT64, "i32": TensorProto.INT32,
    "i16": TensorProto.INT16, "i8": TensorProto.INT8, "u64": TensorProto.UINT64,
    "u32": TensorProto.UINT32, "u16": TensorProto.UINT16, "u8": TensorProto.UINT8,
    "bool": TensorProto.BOOL, "f8e4m3fn": TensorProto.FLOAT8E4M3FN,
    "f8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ, "f8e5m2": TensorProto.FLOAT8E5M2,
    "f8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ, "i4": TensorProto.INT4, "u4": TensorProto.UINT4,
}  # fmt: skip


def export_model(graph: Graph) -> onnx.ModelProto:
    """The graph as an ONNX model of opset 21 with the same input and output names.

    Raises: `WH1204` for an element type that this opset does not have.
    """
    graph = everywhere(lambda g: expand_composites(g, keep=EXPORTERS))(graph)
    emitter = Emitter(Names({v.name for v in graph.inputs} | set(graph.output_names)))
    proto = emitter.graph("whet", graph, {v: v.name for v in graph.inputs}, graph.output_names)
    domains = [helper.make_opsetid("", OPSET)]
    if emitter.names.native:
        domains.append(helper.make_opsetid(NATIVE_DOMAIN, 1))
    return helper.make_model(
        proto,
        opset_imports=domains,
        ir_version=IR_VERSION,
        producer_name="whet",
        producer_version=__version__,
    )


class Names:
    """Supplies names that are unique in the whole model, bodies included."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.count = 0
        self.native = False
        """Whether a node of the domain `whet` was made."""

    def fresh(self, prefix: str) -> str:
        while (name := f"{prefix}{self.count}") in self.taken:
            self.count += 1
        self.taken.add(name)
        return name


class Emitter:
    """Collects the nodes and initializers of one ONNX graph."""

    def __init__(self, names: Names, outer: Mapping[Value, str] | None = None) -> None:
        self.names = names
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.of: dict[Value, str] = dict(outer or {})
        self.source: str | None = None
        """What the source model called the node that is being written."""

    def graph(
        self, title: str, graph: Graph, inputs: Mapping[Value, str], outputs: Sequence[str]
    ) -> onnx.GraphProto:
        """The graph under the given input names; inputs without one are known from outside."""
        self.of.update(inputs)
        wanted: dict[Value, str] = {}
        for value, name in zip(graph.outputs, outputs, strict=True):
            wanted.setdefault(value, name)
        for node in graph.nodes:
            self.source = graph.names.get(node)
            made = self.export(node)
            for result, name in zip(node.results, made, strict=True):
                self.of[result] = self.rename(name, wanted.get(result, name))
        self.source = None
        for value, name in zip(graph.outputs, outputs, strict=True):
            if self.name(value) != name:
                self.nodes.append(helper.make_node("Identity", [self.name(value)], [name]))
        return helper.make_graph(
            self.nodes,
            title,
            [value_info(name, value.type) for value, name in inputs.items()],
            [value_info(name, value.type) for name, value in zip(outputs, graph.outputs)],
            self.initializers,
        )

    def rename(self, old: str, new: str) -> str:
        """The name of an output of the node made last, changed to `new` if it is one."""
        outputs = self.nodes[-1].output if self.nodes else []
        if old == new or old not in outputs:
            return old
        outputs[list(outputs).index(old)] = new
        return new

    def export(self, node: Node) -> Sequence[str]:
        inputs = [self.name(v) for v in node.inputs]
        exporter = EXPORTERS.get(node.op.name)
        if exporter is None:
            self.names.native = True
            return export_native(self, node, inputs)
        return exporter(self, node, inputs)

    def name(self, value: Value) -> str:
        """The ONNX name of a value; a constant becomes an initializer when first read."""
        if value not in self.of and isinstance(value, Constant):
            self.of[value] = self.constant(value.array)
        return self.of[value]

    def constant(self, array: Array) -> str:
        """The name of a new initializer."""
        array = np.asarray(array)
        tensor = numpy_helper.from_array(array, self.names.fresh("c"))
        self.initializers.append(tensor)
        return str(tensor.name)

    def emit(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """The names of the outputs of a new node; an attribute that is None is left out."""
        names = tuple(self.names.fresh("v") for _ in range(outputs))
        label = None if self.source is None else f"{self.source}/{op_type}/{names[0]}"
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(op_type, inputs, names, label, domain=domain, **given))
        return names

    def element_type(self, dtype: DType) -> int:
        """The ONNX number of an element type."""
        return element_type(dtype)

    def body(self, graph: Graph, captured: Mapping[Value, str]) -> onnx.GraphProto:
        """The body of a control-flow node; `captured` inputs are read from outside by name."""
        inner = Emitter(self.names, captured)
        own: dict[Value, str] = {
            v: self.names.fresh("b") for v in graph.inputs if v not in captured
        }
        outputs = [self.names.fresh("r") for _ in graph.outputs]
        return inner.graph("body", graph, own, outputs)


def value_info(name: str, type: OutputType) -> onnx.ValueInfoProto:
    """The declaration of an input or output."""
    shape = type.shape if isinstance(type, TensorType) else (None,) * type.rank
    return helper.make_tensor_value_info(name, element_type(type.dtype), shape)


def element_type(dtype: DType) -> int:
    """The ONNX number of an element type."""
    found = _ELEMENT_TYPES.get(dtype.name)
    if found is None:
        fail("WH1204", f"element type {dtype} does not exist in ONNX opset {OPSET}",
             kind=GraphError)  # fmt: skip
    return found
