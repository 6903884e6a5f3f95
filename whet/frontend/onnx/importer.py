"""Walks an ONNX model and builds a Graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import numpy_helper

from whet.core.errors import ModelError, UnsupportedError, fail
from whet.core.types import Array, type_of
from whet.frontend.onnx.mapping import (
    Context,
    Converted,
    NeedsValue,
    Unsupported,
    find_converter,
)
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Input, Result, Value


def import_model(model: onnx.ModelProto, examples: Mapping[str, Array]) -> Graph:
    """The model as a Graph, with input types taken from the examples.

    Inputs whose values a shape depends on are replaced by their example (contract 8).
    """
    specialised: set[str] = set()
    while True:
        try:
            return _Importer(model, examples, specialised).graph()
        except NeedsValue as need:
            found = _inputs_behind(need.value) - specialised
            if not found:
                fail("WH2005", "a shape depends on a value that is computed", kind=ModelError)
            specialised |= found


def _inputs_behind(value: Value) -> set[str]:
    names, stack = set(), [value]
    while stack:
        v = stack.pop()
        if isinstance(v, Input):
            names.add(v.name)
        elif isinstance(v, Result):
            stack.extend(v.node.inputs)
    return names


class _Importer:
    def __init__(
        self, model: onnx.ModelProto, examples: Mapping[str, Array], specialised: set[str]
    ) -> None:
        self.model, self.examples, self.specialised = model, examples, specialised
        self.builder = GraphBuilder()
        self.opsets = {o.domain or "": o.version for o in model.opset_import}
        self.problems: Counter[str] = Counter()

    def graph(self) -> Graph:
        source = self.model.graph
        env: dict[str, Converted] = {"": None}
        for tensor in source.initializer:
            env[tensor.name] = self.builder.constant(numpy_helper.to_array(tensor))
        inputs: list[Input] = []
        for info in source.input:
            if info.name in env:
                continue
            array = self.examples[info.name]
            if info.name in self.specialised:
                env[info.name] = self.builder.constant(array)
            else:
                value = self.builder.input(info.name, type_of(array))
                env[info.name] = value
                inputs.append(value)
        self.convert_nodes(source.node, env)
        if self.problems:
            lines = [f"{text} ({n}x)" for text, n in self.problems.items()]
            fail("WH2002", "unsupported parts", *lines, kind=UnsupportedError)
        outputs = [o.name for o in source.output]
        return Graph(
            tuple(inputs), tuple(env[o] for o in outputs), tuple(outputs), self.builder.names
        )

    def convert_nodes(self, nodes: Sequence[Any], env: dict[str, Converted]) -> None:
        for node in nodes:
            if any(name not in env for name in node.input):
                continue  # reads the output of a node that is reported already
            try:
                results = self.convert(node, env)
            except Unsupported as reason:
                self.problems[f"{node.op_type}: {reason}"] += 1
                continue
            env.update(zip(node.output, results))

    def convert(self, node: Any, env: dict[str, Converted]) -> tuple[Converted, ...]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self.opsets.get(domain, 1)
        converter = find_converter(domain, node.op_type, opset)
        if converter is None:
            raise Unsupported("operator is not supported")
        attributes = {a.name: _decode(onnx.helper.get_attribute_value(a)) for a in node.attribute}

        def run_subgraph(graph: Any, args: Sequence[Converted]) -> tuple[Converted, ...]:
            inner = dict(env)
            for tensor in graph.initializer:
                inner[tensor.name] = self.builder.constant(numpy_helper.to_array(tensor))
            inner.update(zip((i.name for i in graph.input), args))
            self.convert_nodes(graph.node, inner)
            if any(o.name not in inner for o in graph.output):
                raise Unsupported("body is not supported")
            return tuple(inner[o.name] for o in graph.output)

        self.builder.current_name = node.name or node.op_type
        context = Context(
            self.builder, node.op_type, domain, opset, node.name,
            tuple(env[name] for name in node.input), attributes, len(node.output), run_subgraph,
        )  # fmt: skip
        result = converter(context)
        return result if isinstance(result, tuple) else (result,)


def _decode(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [_decode(v) for v in value]
    return value
