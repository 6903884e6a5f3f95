"""Composite operators into primitives."""

from __future__ import annotations

from collections.abc import Collection

from whet.core.errors import check
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Node, Value
from whet.graph.rewrite import rebuild
from whet.ops.base import Op
from whet.ops.shared.control import Control


def expand_composites(graph: Graph, keep: Collection[str] = ()) -> Graph:
    """The graph with every operator that has an `expand` replaced by its expansion.

        layer_norm(x, s, b)    ->    add(mul(div(sub(x, mean), deviation), s), b)

    Cases: (1) an operator with `expand`: replaced, and composites inside the expansion too;
    (2) an operator named in `keep`: kept, wherever it comes from; (3) one that runs bodies: kept
    unless it says otherwise, since writing them out is a choice; (4) any other: kept.
    """
    builder = ExpandingBuilder(frozenset(keep))

    def step(_: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
        return builder.results(node.op, *inputs) if builder.expands(node.op) else None

    return rebuild(graph, step, builder)


class ExpandingBuilder(GraphBuilder):
    """A builder that never makes a composite node, except those it is told to keep."""

    def __init__(self, keep: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.keep = keep

    def expands(self, op: Op) -> bool:
        if op.expand is None or op.name in self.keep:
            return False
        return not (isinstance(op, Control) and op.is_kept)

    def results(self, op: Op, *values: Value) -> tuple[Value, ...]:
        if op.expand is None or not self.expands(op):
            return super().results(op, *values)
        expanded = op.expand(self, *values)
        results = expanded if isinstance(expanded, tuple) else (expanded,)
        got = tuple(v.type for v in results)
        expected = op.infer_types(tuple(v.tensor_type for v in values))
        shown = f"{', '.join(map(str, got))} where {', '.join(map(str, expected))} is inferred"
        check(got == expected, "WH1105", f"the expansion of {op.name} gave {shown}")
        return results
