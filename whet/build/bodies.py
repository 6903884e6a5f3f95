"""Bodies of control flow: as graphs of their own, and as compiled code that a loop calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whet.core.types import Array, TensorType
from whet.graph.graph import Constant, Graph, Input, Node, Value
from whet.graph.passes.expand_composites import ExpandingBuilder
from whet.graph.rewrite import bodies
from whet.ops.base import Body, Builder, Op
from whet.ops.control import Control
from whet.runtime.executable import Executable


@dataclass(frozen=True, eq=False)
class BodyGraph:
    """A body of a node as a graph of primitives.

    Values that are constants of the graph around it are constants here too; `taken` are the
    numbers of the body's inputs that are left.
    """

    graph: Graph
    taken: tuple[int, ...]


def body_graphs(node: Node) -> dict[str, BodyGraph]:
    """The bodies of a node by the attribute that holds them; none for most nodes."""
    if not isinstance(node.op, Control):
        return {}
    return {name: _body_graph(node, node.op, name) for name in bodies(node.op)}


def _body_graph(node: Node, op: Control, name: str) -> BodyGraph:
    body: Body = getattr(op, name)
    builder = ExpandingBuilder()
    values: list[Value] = []
    inputs: dict[int, Input] = {}
    for number, (t, given) in enumerate(
        zip(body.input_types, node.inputs[op.unseen :], strict=True)
    ):
        if number >= op.first_whole and isinstance(given, Constant):
            values.append(given)
        else:
            inputs[number] = builder.input(f"x{number}", t)
            values.append(inputs[number])
    outputs = tuple(body.build(builder, *values))
    names = tuple(f"y{n}" for n in range(len(outputs)))
    return BodyGraph(Graph(tuple(inputs.values()), outputs, names), tuple(inputs))


@dataclass(frozen=True, eq=False)
class CompiledBody:
    """A body that runs as native code; `taken` are its inputs that the code takes."""

    body: Body
    executable: Executable
    taken: tuple[int, ...]

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return self.body.input_types

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return self.body.output_types

    def run(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        return self.executable([arrays[n] for n in self.taken])

    def build(self, builder: Builder, *values: Any) -> tuple[Any, ...]:
        return self.body.build(builder, *values)

    def widened(self) -> Body:
        return self.body.widened()


def with_compiled_bodies(node: Node, compile_graph: Callable[[Graph], Executable]) -> Op:
    """The node's operator, whose bodies, if it has any, are compiled."""
    made = {
        name: CompiledBody(getattr(node.op, name), compile_graph(inner.graph), inner.taken)
        for name, inner in body_graphs(node).items()
    }
    if not made:
        return node.op
    return dataclasses.replace(node.op, **made)  # type: ignore[type-var]
