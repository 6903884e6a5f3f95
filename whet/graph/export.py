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
from onnx import helper, numpy_helper

from whet.core.dtypes import DType
from whet.core.types import Array, TensorType
from whet.core.version import VERSION
from whet.graph.export_joined import Joined, joined_nodes
from whet.graph.export_operators import EXPORTERS, NATIVE_DOMAIN, OPSET, export_native
from whet.graph.export_types import NotInOnnxError, element_type, plan_types
from whet.graph.graph import Constant, Graph, Node, Value
from whet.graph.passes.expand_composites import expand_composites
from whet.graph.rewrite import everywhere
from whet.ops.base import OutputType

IR_VERSION = 10
"""The file format that belongs to opset 21."""


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
        producer_version=VERSION,
    )


def export_bytes(graph: Graph) -> bytes:
    """The graph as the bytes of an ONNX file."""
    made: Any = export_model(graph)
    return bytes(made.SerializeToString())


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
        self.types: dict[str, int] = {}
        """ONNX name to its element type, as far as known."""
        self.source: str | None = None
        """What the source model called the node that is being written."""

    def graph(
        self, title: str, graph: Graph, inputs: Mapping[Value, str], outputs: Sequence[str]
    ) -> onnx.GraphProto:
        """The graph under the given input names; inputs without one are known from outside."""
        self.of.update(inputs)
        self.types.update({name: element_type(v.type.dtype) for v, name in inputs.items()})
        wanted: dict[Value, str] = {}
        for value, name in zip(graph.outputs, outputs, strict=True):
            wanted.setdefault(value, name)
        joined = joined_nodes(graph)
        inside = {found.inner for found in joined.values()}
        for node in graph.nodes:
            if node in inside:
                continue
            self.source = graph.names.get(node)
            found = joined.get(node)
            made = self.export(node) if found is None else self.export_joined(node, found)
            for result, name in zip(node.results, made, strict=True):
                self.of[result] = self.rename(name, wanted.get(result, name))
                self.types[self.of[result]] = element_type(result.type.dtype)
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
        if exporter is not None:
            before = len(self.nodes)
            try:
                return exporter(self, node, inputs)
            except NotInOnnxError:
                del self.nodes[before:]
        return export_native(self, node, inputs)

    def export_joined(self, node: Node, found: Joined) -> Sequence[str]:
        """One ONNX node for two, or both of them where the element type has no such node."""
        before = len(self.nodes)
        try:
            return found.write(self, [self.name(v) for v in found.inputs])
        except NotInOnnxError:
            del self.nodes[before:]
        self.of.update(zip(found.inner.results, self.export(found.inner), strict=True))
        return self.export(node)

    def name(self, value: Value) -> str:
        """The ONNX name of a value; a constant becomes an initializer when first read."""
        if value not in self.of and isinstance(value, Constant):
            self.of[value] = self.constant(value.array)
        return self.of[value]

    def constant(self, array: Array) -> str:
        """The name of a new initializer."""
        tensor = numpy_helper.from_array(np.asarray(array), self.names.fresh("c"))
        self.initializers.append(tensor)
        self.types[tensor.name] = tensor.data_type
        return str(tensor.name)

    def emit(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """The names of the outputs of a new node; an attribute that is None is left out.

        Where ONNX defines the operator for other element types only, casts around it carry
        the values in one that it has.
        """
        names = tuple(self.names.fresh("v") for _ in range(outputs))
        if domain == NATIVE_DOMAIN:
            self.names.native = True
            return self.add(op_type, inputs, names, domain, attributes)
        plan = plan_types(op_type, OPSET, [self.types.get(name, 0) for name in inputs], outputs)
        carried = [
            name if type is None else self.add_cast(name, self.names.fresh("v"), type)
            for name, type in zip(inputs, plan.input_casts)
        ]
        inner = [name if type is None else self.names.fresh("v")
                 for name, type in zip(names, plan.output_casts)]  # fmt: skip
        self.add(op_type, carried, inner, domain, attributes)
        self.types.update(zip(inner, plan.output_types))
        for name, raw, type in zip(names, inner, plan.output_casts):
            if type is not None:
                self.add_cast(raw, name, type)
        return names

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        domain: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> tuple[str, ...]:
        """Append a node as it is."""
        label = None if self.source is None else f"{self.source}/{op_type}/{outputs[0]}"
        node = helper.make_node(op_type, inputs, outputs, label, domain=domain)
        for key, value in (attributes or {}).items():
            if value is not None:
                # Only lists of integers may be empty, and then their type cannot be guessed.
                empty = isinstance(value, (list, tuple)) and not value
                kind = onnx.AttributeProto.INTS if empty else None
                node.attribute.append(helper.make_attribute(key, value, attr_type=kind))
        self.nodes.append(node)
        return tuple(outputs)

    def add_cast(self, source: str, target: str, type: int) -> str:
        """Append a conversion to an ONNX element type."""
        self.types[target] = type
        return self.add("Cast", [source], [target], attributes={"to": type})[0]

    def element_type(self, dtype: DType) -> int:
        """The ONNX number of an element type."""
        return element_type(dtype)

    def body(self, graph: Graph, captured: Mapping[Value, str]) -> onnx.GraphProto:
        """The body of a control-flow node; `captured` inputs are read from outside by name."""
        inner = Emitter(self.names, captured)
        inner.types = dict(self.types)
        own: dict[Value, str] = {
            v: self.names.fresh("b") for v in graph.inputs if v not in captured
        }
        outputs = [self.names.fresh("r") for _ in graph.outputs]
        return inner.graph("body", graph, own, outputs)


def value_info(name: str, type: OutputType) -> onnx.ValueInfoProto:
    """The declaration of an input or output."""
    shape = type.shape if isinstance(type, TensorType) else (None,) * type.rank
    return helper.make_tensor_value_info(name, element_type(type.dtype), shape)
