"""Rebuilding a graph bottom-up: the loop that every pass shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from whet.core.dtypes import DType
from whet.graph.body import GraphBody
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Graph, Node, Value, make_input
from whet.ops.base import Body, Op

Step = Callable[[GraphBuilder, Node, tuple[Value, ...]], tuple[Value, ...] | None]
"""Says what replaces a node, given its rebuilt inputs: one value per result, or None to keep it."""


def rebuild(graph: Graph, step: Step, builder: GraphBuilder | None = None) -> Graph:
    """The graph with every node replaced by what `step` says, producers before their users.

        y = f(x); z = g(y)    ->    y' = step(f, x); z' = step(g, y')

    Where `step` gives None, the operator is applied to the rebuilt inputs; a node whose inputs
    became constant is folded by the builder.  Values that nothing needs afterwards are gone,
    equal ones are one value, and new nodes inherit the name of the node that they replace.
    Iterative, so the depth of a graph does not matter.
    """
    b = builder or GraphBuilder()
    now: dict[Value, Value] = {}
    for node in graph.nodes:
        inputs = tuple(now.get(v, v) for v in node.inputs)
        b.current_name = graph.names.get(node)
        results = step(b, node, inputs)
        if results is None:
            results = _keep(b, node, inputs)
        now.update(zip(node.results, results, strict=True))
    outputs = tuple(now.get(v, v) for v in graph.outputs)
    return Graph(graph.inputs, outputs, graph.output_names, b.names)


def _keep(b: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """The node's results on the rebuilt inputs; the same node where nothing changed."""
    unchanged = all(new is old for new, old in zip(inputs, node.inputs))
    if unchanged and not all(isinstance(v, Constant) for v in inputs):
        if b.current_name is not None:
            b.names.setdefault(node, b.current_name)
        return node.results
    return b.results(node.op, *inputs)


_PLAIN = (int, float, str, tuple, DType, type(None))
"""Attributes that are no bodies: asking a protocol about each takes microseconds."""


def bodies(op: Op) -> dict[str, Graph]:
    """The graphs among the operator's attributes (the step of a scan), by attribute."""
    fields = dataclasses.fields(op)  # type: ignore[arg-type]
    values = {field.name: getattr(op, field.name) for field in fields}
    return {
        name: body_graph(v)
        for name, v in values.items()
        if not isinstance(v, _PLAIN) and isinstance(v, Body)
    }


def is_steady(op: Op) -> bool:
    """Whether the operator gives the same results whenever it runs, bodies included."""
    inside = (node.op for graph in bodies(op).values() for node in graph.nodes)
    return op.deterministic and all(map(is_steady, inside))


def body_graph(body: Body) -> Graph:
    """The graph of any body, with inputs x0, x1, ... and outputs y0, y1, ..."""
    if isinstance(body, GraphBody):
        return body.graph
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(body.input_types))
    outputs = body.build(GraphBuilder(), *inputs)
    return Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))


def everywhere(change: Callable[[Graph], Graph]) -> Callable[[Graph], Graph]:
    """The pass that also changes the graphs inside operators, innermost first.

    scan(x, body={relu(relu(h))})    ->    scan(x, body={relu(h)})
    """

    def step(b: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
        found = {name: GraphBody(changed(inner)) for name, inner in bodies(node.op).items()}
        if not found:
            return None
        return b.results(dataclasses.replace(node.op, **found), *inputs)  # type: ignore[type-var]

    def changed(graph: Graph) -> Graph:
        has_bodies = any(bodies(node.op) for node in graph.nodes)
        return change(rebuild(graph, step) if has_bodies else graph)

    return changed
