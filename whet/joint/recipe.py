"""Rewritten graphs as recipes over the leaves of the graph that they were made from.

    recipe: y = matmul(leaf0, concat(leaf1, leaf2, axis=1))      leaves: inputs and constants

A recipe is the text of a graph whose inputs are the leaves, so it holds no weights, can be kept
between runs, and makes the same graph again from a model that is imported again.
"""

from __future__ import annotations

import numpy as np

from whet.core.digest import digest_text
from whet.core.errors import GraphError
from whet.graph.build import GraphBuilder
from whet.graph.graph import (
    Computed,
    Constant,
    Graph,
    Input,
    Node,
    Result,
    Value,
    apply,
    make_constant,
    make_input,
    topological,
)
from whet.graph.text import parse_graph, print_graph, stored_arrays


def leaves_of(graph: Graph) -> tuple[Value, ...]:
    """The inputs and constants of a graph in the order in which its nodes read them."""
    read = (v for node in graph.nodes for v in node.inputs if not isinstance(v, Result))
    ends = (v for v in graph.outputs if not isinstance(v, Result))
    return tuple(dict.fromkeys((*graph.inputs, *read, *ends)))


def write_recipe(graph: Graph, outputs: tuple[Value, ...]) -> str | None:
    """The outputs as a graph over the leaves; None if that needs arrays that are no leaves."""
    leaves = leaves_of(graph)
    now: dict[Value, Value] = {
        v: make_input(f"leaf{n}", v.tensor_type) for n, v in enumerate(leaves)
    }
    inputs = tuple(v for v in now.values() if isinstance(v, Input))

    def made(v: Value) -> Value:
        if v not in now:
            if isinstance(v, Computed):
                given = tuple(made(i) for i in v.node.inputs)
                now[v] = apply(v.node.op, *given)[v.index]
            else:
                now[v] = v
        return now[v]

    for node in topological(outputs):
        given = tuple(made(v) for v in node.inputs)
        now.update(zip(node.results, apply(node.op, *given), strict=True))
    written = Graph(inputs, tuple(made(v) for v in outputs), graph.output_names)
    return None if stored_arrays(written) else print_graph(written)


def form_digest(graph: Graph) -> str:
    """Equal for graphs that differ in the elements of their constants alone; single numbers count.

    Names count too: the recipe has the names of outputs.
    """
    leaves = leaves_of(graph)
    numbers = [
        v.array.tobytes().hex() for v in leaves if isinstance(v, Constant) and v.type.size == 1
    ]
    kinds = "".join("c" if isinstance(v, Constant) else "i" for v in leaves)
    text = write_recipe(graph, graph.outputs)
    return digest_text(text or "", kinds, *numbers)


def follow_recipe(text: str, graph: Graph) -> Graph:
    """The graph that the recipe makes of the leaves of this one, constants computed.

    Raises: `GraphError` if the recipe is not one for this graph.
    """
    recipe = parse_graph(text)
    leaves = leaves_of(graph)
    types = [v.tensor_type for v in recipe.inputs]
    if types != [v.tensor_type for v in leaves] or recipe.output_names != graph.output_names:
        raise GraphError("WH1202", "the recipe is for another graph")
    now: dict[Value, Value] = dict(zip(recipe.inputs, leaves, strict=True))
    builder = ComputingBuilder()
    for node in recipe.nodes:
        given = tuple(now.get(v, v) for v in node.inputs)
        now.update(zip(node.results, builder.results(node.op, *given), strict=True))
    outputs = tuple(now.get(v, v) for v in recipe.outputs)
    return Graph(graph.inputs, outputs, graph.output_names, graph.names)


class ComputingBuilder(GraphBuilder):
    """A builder that folds constants whatever their size: the price of a rewrite counts on it."""

    def fold(self, node: Node) -> tuple[Value, ...] | None:
        if not node.op.folds or not all(isinstance(v, Constant) for v in node.inputs):
            return None
        arrays = tuple(v.array for v in node.inputs if isinstance(v, Constant))
        return tuple(make_constant(np.asarray(r)) for r in node.op.run_reference(arrays))
