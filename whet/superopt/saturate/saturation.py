"""Saturation: rewrites as equations, round by round, until nothing new is known or limits are met.

Rules with several terms on both sides, and merges of operators that reduce, multiply fastest; as in
TenSAT (MLSys'21, section 4) they are used in the first rounds alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from whet.superopt.apply.patterns import Patterns
from whet.superopt.apply.rewrite import Part, Rewrite
from whet.superopt.saturate.axis_laws import AxisLaws
from whet.superopt.saturate.egraph import EGraph
from whet.superopt.saturate.ematch import EMatcher

Law = Callable[[Callable[[], bool]], Iterable[Rewrite]]
"""A source of rewrites, which is told when it is over."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of growth: e-nodes, rounds, those of them with rules of several terms,
    rounds of the laws of axes in each, seconds."""

    nodes: int = 800
    rounds: int = 8
    several: int = 2
    axis_rounds: int = 40
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
    laws = AxisLaws(graph)
    matcher = EMatcher(patterns, graph) if patterns is not None else None

    def over(nodes: int) -> bool:
        return len(graph) >= nodes or time.perf_counter() > until

    cut_short = False
    for count in range(limits.rounds):
        before = graph.changes
        several = count < limits.several
        # The laws of axes are found faster than matches of rules, and must leave room for them.
        half = (len(graph) + limits.nodes) // 2 if matcher is not None else limits.nodes
        _unite(graph, partial(laws.rewrites, several), partial(over, half))
        # Slices go through one operator at a time, and what follows a merge through one merge.
        for _ in range(limits.axis_rounds):
            known = graph.changes
            _unite(graph, partial(laws.rewrites, False), partial(over, half))
            if over(half) or graph.changes == known:
                break
        cut_short |= over(half)
        if matcher is not None:
            _unite(graph, partial(matcher.rewrites, several), partial(over, limits.nodes))
        if over(limits.nodes):
            return Saturated(graph, count + 1, False)
        if graph.changes == before:
            return Saturated(graph, count + 1, not cut_short)
    return Saturated(graph, limits.rounds, False)


def _unite(graph: EGraph, rewrites: Law, over: Callable[[], bool]) -> None:
    """Unions of all rewrites, which are found before the first of them: as long as limits allow."""
    found: list[Rewrite] = []
    for rewrite in rewrites(over):
        found.append(rewrite)
        if over():
            break
    for rewrite in found:
        if over():
            break
        graph.union(rewrite)
    graph.rebuild()
