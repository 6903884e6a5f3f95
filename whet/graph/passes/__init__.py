"""Passes: pure functions from Graph to Graph, one file each.

Common subexpressions and dead code need no pass: nodes are interned, so equal computations
are one node, and a graph holds only what its outputs need.
"""

from __future__ import annotations

from collections.abc import Callable

from whet.graph.graph import Graph
from whet.graph.passes.expand_composites import expand_composites as expand_composites
from whet.graph.passes.fold_batch_norm import fold_batch_norm as fold_batch_norm
from whet.graph.passes.fold_constants import fold_constants as fold_constants
from whet.graph.passes.fold_empty import fold_empty as fold_empty
from whet.graph.passes.simplify import simplify as simplify
from whet.graph.rewrite import everywhere
from whet.ops.base import Numeric

PassObserver = Callable[[str, Graph, Graph], None]


def optimize(
    graph: Graph, *, numerics: Numeric = "real", observe: PassObserver | None = None
) -> Graph:
    """The graph after all passes that improve every graph, bodies of scans included.

    `numerics="exact"` leaves out what is true over the reals only.  `observe` is called after
    each pass with its name and the graphs before and after it.
    """
    passes: list[tuple[str, Callable[[Graph], Graph]]] = [
        ("fold_constants", fold_constants),
        ("fold_empty", fold_empty),
        ("simplify", lambda g: simplify(g, numerics)),
    ]
    if numerics == "real":
        passes += [("fold_batch_norm", fold_batch_norm), ("simplify", simplify)]
    for name, change in passes:
        before, graph = graph, everywhere(change)(graph)
        if observe is not None:
            observe(name, before, graph)
    return graph
