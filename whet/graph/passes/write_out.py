"""Recurrences written out, for targets whose segments run no loops."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.graph.passes.simplify import SimplifyingBuilder
from whet.graph.rewrite import body_graph, rebuild
from whet.ops.base import Numeric, Op
from whet.ops.scan import Scan
from whet.ops.shared.control import Control

MOST_NODES = 4096
"""Nodes that a recurrence may become: 270 steps of an LSTM.  Planning takes three milliseconds for
each, and every step may have kernels of its own, because it reads another slice."""


def write_out(graph: Graph, numerics: Numeric = "real") -> Graph:
    """The graph with the steps of recurrences one after the other.

        scan(body: h, x_t -> tanh(x_t + h @ u)) over 3 steps
        ->  h1 = tanh(x[0] + h0 @ u); h2 = tanh(x[1] + h1 @ u); h3 = tanh(x[2] + h2 @ u)

    Cases: (1) a scan that becomes few nodes, and what expands to one: written out, and so are
    those in its body; (2) one that would become too many: kept as it is; (3) any other operator:
    kept.
    """
    if not has_recurrence(graph):
        return graph
    return rebuild(graph, lambda b, node, inputs: b.results(node.op, *inputs), _Writer(numerics))


def has_recurrence(graph: Graph) -> bool:
    """Whether there is something to write out."""
    return any(_recurs(node.op, *_types(node.inputs)) for node in graph.nodes)


class _Writer(SimplifyingBuilder):
    """A builder that makes no recurrences, wherever they come from."""

    def results(self, op: Op, *values: Value) -> tuple[Value, ...]:
        if op.expand is not None and _recurs(op, *_types(values)):
            made: Any = op.expand(self, *values)
            return made if isinstance(made, tuple) else (made,)
        return super().results(op, *values)


def _types(values: tuple[Value, ...]) -> tuple[Any, ...]:
    return tuple(v.type for v in values)


def _recurs(op: Op, *types: Any) -> bool:
    """Whether an operator is a recurrence that can be written out, or expands to one."""
    if isinstance(op, Control):  # not remembered: bodies may hold weights
        return isinstance(op, Scan) and op.length * _size(op) <= MOST_NODES
    return op.expand is not None and _expands_to_one(op, *types)


@lru_cache(maxsize=256)
def _expands_to_one(op: Op, *types: TensorType) -> bool:
    b = GraphBuilder()
    values = [b.input(f"x{n}", t) for n, t in enumerate(types)]
    assert op.expand is not None
    made: Any = op.expand(b, *values)
    outputs = made if isinstance(made, tuple) else (made,)
    inner = Graph(tuple(values), outputs, tuple(f"y{n}" for n in range(len(outputs))))
    return any(_recurs(node.op, *_types(node.inputs)) for node in inner.nodes)


def _size(op: Op) -> int:
    """Nodes of one step of a scan; one of any other operator."""
    if not isinstance(op, Scan):
        return 1
    return sum(_size(node.op) * getattr(node.op, "length", 1) for node in body_graph(op.body).nodes)
