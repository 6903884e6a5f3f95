"""Local simplification."""

from __future__ import annotations

from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.graph.passes.rules import RULES
from whet.graph.rewrite import rebuild
from whet.ops.base import Numeric, Op


def simplify(graph: Graph, numerics: Numeric = "real") -> Graph:
    """The graph with the rules of `passes.rules` applied until none fits.

        add(reshape(reshape(x)), 0)    ->    reshape(x)

    With `numerics="exact"` only rules that keep all bits are applied.
    """
    builder = SimplifyingBuilder(numerics)
    return rebuild(graph, lambda b, node, inputs: b.results(node.op, *inputs), builder)


class SimplifyingBuilder(GraphBuilder):
    """A builder that tries the rules before it makes a node; what they make is tried again."""

    def __init__(self, numerics: Numeric = "real") -> None:
        super().__init__()
        self.numerics = numerics

    def results(self, op: Op, *values: Value) -> tuple[Value, ...]:
        for rule in RULES.get(op.name, ()):
            if rule.numeric == "exact" or self.numerics == "real":
                found = rule.rewrite(self, op, values)
                if found is not None:
                    return found if isinstance(found, tuple) else (found,)
        return super().results(op, *values)
