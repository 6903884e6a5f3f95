"""Saturation: rewrites as equations, round by round, until nothing new is known or limits are met.

Rules with several terms on both sides, and merges of operators that reduce, multiply fastest; as in
TenSAT (MLSys'21, section 4) they are used in the first rounds alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from whet.superopt.apply.patterns import Patterns
from whet.superopt.apply.rewrite import Part, Rewrite
from whet.superopt.saturate.axis_laws import axis_laws
from whet.superopt.saturate.egraph import EGraph
from whet.superopt.saturate.ematch import EMatcher


@dataclass(frozen=True, slots=True)
class Limits:
    """How far an e-graph may grow: e-nodes, rounds, those with rules of several terms, seconds."""

    nodes: int = 2000
    rounds: int = 8
    several: int = 2
    seconds: float = 10.0


@dataclass(frozen=True, eq=False)
class Saturated:
    """An e-graph, and whether everything within reach is in it."""

    graph: EGraph
    rounds: int
    complete: bool


def saturate(part: Part, patterns: Patterns | None, limits: Limits) -> Saturated:
    """The e-graph of all that rewrites make of the part."""
    until = time.perf_counter() + limits.seconds
    graph = EGraph(part)
    matcher = EMatcher(patterns, graph) if patterns is not None else None
    for count in range(limits.rounds):
        before = graph.changes
        several = count < limits.several
        found: list[Rewrite] = []
        for rewrite in _rewrites(graph, matcher, several):
            found.append(rewrite)
            if time.perf_counter() > until:
                break
        for rewrite in found:
            if len(graph) >= limits.nodes:
                break
            graph.union(rewrite)
        graph.rebuild()
        if len(graph) >= limits.nodes or time.perf_counter() > until:
            return Saturated(graph, count + 1, False)
        if graph.changes == before and not several:
            return Saturated(graph, count + 1, True)
    return Saturated(graph, limits.rounds, False)


def _rewrites(graph: EGraph, matcher: EMatcher | None, several: bool) -> Iterator[Rewrite]:
    yield from axis_laws(graph, several)
    if matcher is not None:
        yield from matcher.rewrites(several)
