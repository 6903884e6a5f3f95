"""Bodies of control flow as graphs of their own."""

from __future__ import annotations

from dataclasses import dataclass

from whet.graph.graph import Constant, Graph, Input, Node, Value
from whet.graph.passes.expand_composites import ExpandingBuilder
from whet.graph.rewrite import bodies
from whet.ops.base import Body
from whet.ops.shared.control import Control


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
