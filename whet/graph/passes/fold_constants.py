"""Constant folding."""

from __future__ import annotations

from whet.graph.graph import Graph
from whet.graph.rewrite import rebuild


def fold_constants(graph: Graph) -> Graph:
    """The graph with every node that depends on constants alone replaced by its value.

        add([1, 2], [3, 4])    ->    [4, 6]

    Cases: (1) all inputs constant: evaluated with the operator's reference, several results
    included; (2) a chain of such nodes: folded from its start, so the shape arithmetic of
    exported models disappears; (3) a result that is large and larger than what it is computed
    from: kept, because it would bloat the artifact; (4) everything else: kept.

    A graph made by `GraphBuilder` is folded already and comes back unchanged.
    """
    return rebuild(graph, lambda _builder, _node, _inputs: None)
