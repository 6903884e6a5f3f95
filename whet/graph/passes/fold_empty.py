"""Values without elements."""

from __future__ import annotations

import numpy as np

from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Node, Value
from whet.graph.rewrite import rebuild


def fold_empty(graph: Graph) -> Graph:
    """The graph with every value that has no elements replaced by a constant: it is known.

        matmul(x: f32[0, 8], w)    ->    constant of f32[0, 32]

    Cases: (1) a node all of whose results are empty; (2) a node that reads nothing but empty
    values and constants, such as a sum over no elements: folded like any other; (3) a node with
    an empty result beside others: kept.
    """

    def step(b: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if all(map(_is_empty, node.results)):
            return tuple(_constant(b, v) for v in node.results)
        known = tuple(_constant(b, v) if _is_empty(v) else v for v in inputs)
        return None if known == inputs else b.results(node.op, *known)

    values = (*graph.inputs, *(r for node in graph.nodes for r in node.results))
    return rebuild(graph, step) if any(map(_is_empty, values)) else graph


def _is_empty(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.size == 0


def _constant(b: GraphBuilder, value: Value) -> Value:
    t = value.tensor_type
    return b.constant(np.empty(t.shape, t.dtype.numpy))
