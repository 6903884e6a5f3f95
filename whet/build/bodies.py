"""Recurrences: the body of a scan compiled once and run step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Graph, Input, Node, Value
from whet.ops.base import Body, Builder, Op
from whet.ops.scan import Scan
from whet.runtime.executable import Executable


@dataclass(frozen=True, eq=False)
class CompiledBody:
    """A body that runs as native code.

    `positions` are the body's inputs that the code takes; the others are constants of the
    graph around it and part of the code.
    """

    body: Body
    executable: Executable
    positions: tuple[int, ...]

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return self.body.input_types

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return self.body.output_types

    def run(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        return self.executable([arrays[n] for n in self.positions])

    def build(self, builder: Builder, *values: Any) -> tuple[Any, ...]:
        return self.body.build(builder, *values)

    def widened(self) -> Body:
        return self.body.widened()


def with_compiled_body(node: Node, compile_graph: Callable[[Graph], Executable]) -> Op:
    """The node's operator, whose body, if it has one, is compiled."""
    if not isinstance(node.op, Scan):
        return node.op
    body = node.op.body
    first_whole = node.op.states + len(node.op.input_axes)
    builder = GraphBuilder()
    values: list[Value] = []
    inputs: dict[int, Input] = {}
    for number, (t, given) in enumerate(zip(body.input_types, node.inputs, strict=True)):
        if number >= first_whole and isinstance(given, Constant):
            values.append(given)
        else:
            inputs[number] = builder.input(f"x{number}", t)
            values.append(inputs[number])
    outputs = tuple(body.build(builder, *values))
    graph = Graph(tuple(inputs.values()), outputs, tuple(f"y{n}" for n in range(len(outputs))))
    compiled = CompiledBody(body, compile_graph(graph), tuple(inputs))
    return dataclasses.replace(node.op, body=compiled)
