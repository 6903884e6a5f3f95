"""Passes: pure functions from Graph to Graph, one file each.

Common subexpressions and dead code need no pass: nodes are interned, so equal computations
are one node, and a graph holds only what its outputs need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whet.graph.graph import Graph
from whet.graph.passes.expand_composites import expand_composites as expand_composites
from whet.graph.passes.fold_batch_norm import fold_batch_norm as fold_batch_norm
from whet.graph.passes.fold_constants import fold_constants as fold_constants
from whet.graph.passes.fold_empty import fold_empty as fold_empty
from whet.graph.passes.lift_steps import lift_steps as lift_steps
from whet.graph.passes.simplify import simplify as simplify
from whet.graph.rewrite import everywhere
from whet.ops.base import Numeric

PassObserver = Callable[[str, Graph, Graph], None]


@dataclass(frozen=True)
class Pass:
    """A pass by its name, with the numerics that it is for."""

    name: str
    change: Callable[[Graph, Numeric], Graph]
    """The graph changed, for a model of those numerics."""
    numeric: Numeric = "exact"
    """`real`: changes rounding, so it is left out unless the model's numerics are `real`."""

    def run(self, graph: Graph, numerics: Numeric) -> Graph:
        """The graph changed, bodies of scans included."""
        return everywhere(lambda inner: self.change(inner, numerics))(graph)


PASSES: list[Pass] = [
    Pass("fold_constants", lambda graph, _: fold_constants(graph)),
    Pass("fold_empty", lambda graph, _: fold_empty(graph)),
    Pass("simplify", simplify),
    Pass("lift_steps", lift_steps),
    Pass("fold_batch_norm", lambda graph, _: fold_batch_norm(graph), "real"),
    Pass("simplify", simplify, "real"),
]
"""All passes in order; who has one of their own adds it here."""


def optimize(
    graph: Graph, *, numerics: Numeric = "real", observe: PassObserver | None = None
) -> Graph:
    """The graph after all passes that improve every graph, bodies of scans included.

    `numerics="exact"` leaves out what is true over the reals only.  `observe` is called after
    each pass with its name and the graphs before and after it.
    """
    for each in PASSES:
        if each.numeric == "real" and numerics != "real":
            continue
        before, graph = graph, each.run(graph, numerics)
        if observe is not None:
            observe(each.name, before, graph)
    return graph
