"""One block by equality saturation: all graphs at once, extracted one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from whet.graph.graph import Node
from whet.joint.blocks import Block
from whet.joint.saturation.surrogate import Alone, Learned
from whet.joint.search import Found, State
from whet.superopt.apply.patterns import Patterns
from whet.superopt.apply.rewrite import Rewrite
from whet.superopt.saturate.egraph import EGraph
from whet.superopt.saturate.optimal import optimal
from whet.superopt.saturate.problem import Choice, Problem, extraction, greedy, without_circles
from whet.superopt.saturate.saturation import Limits, saturate

MOST_GRAPHS = 30
"""Graphs that are extracted from one e-graph."""
FEW_OPTIONS = 60
"""E-nodes among which circles are cut one by one: it takes a solution for each."""
GROWING = 0.5
"""The share of the time in which the e-graph grows; the rest is for extraction."""


def saturated_search(
    block: Block, patterns: Patterns | None, alone: Alone, limits: Limits
) -> Found:
    """The cheapest of the graphs that are extracted from the e-graph of a block.

    Ends when the same graph is extracted again: with what is known no other is expected to be
    cheaper.
    """
    until = time.perf_counter() + limits.seconds
    start = block.part
    learned = Learned(alone, block.places, start)
    first = best = State(start, learned.tried(start, {n: n.results for n in start.nodes}))
    made = saturate(start, patterns, replace(limits, seconds=GROWING * limits.seconds))
    graph = made.graph
    seen = {start.outputs}
    for _ in range(MOST_GRAPHS):
        left = until - time.perf_counter()
        found = extraction(graph, learned)
        choice = best_choice(found.problem, left) if left > 0 else None
        if choice is None:
            return Found(first, best, len(seen), False, "saturation")
        part, nodes = found.part(choice)
        if part.outputs in seen:
            return Found(first, best, len(seen), made.complete, "saturation")
        seen.add(part.outputs)
        state = State(part, learned.tried(part, nodes), rules_behind(graph, nodes))
        best = min(best, state, key=lambda s: s.seconds)
    return Found(first, best, len(seen), False, "saturation")


def best_choice(problem: Problem, seconds: float) -> Choice | None:
    """The best choice that the time allows: of all options where they are few, else of those
    without circles; and the greedy one, for which there is always time."""
    until = time.perf_counter() + seconds
    found = [greedy(problem), optimal(without_circles(problem), seconds)]
    if len(problem.options) <= FEW_OPTIONS:
        found.append(optimal(problem, until - time.perf_counter()))
    choices = [c for c in found if c is not None]
    return min(choices, key=problem.cost, default=None)


def rules_behind(graph: EGraph, nodes: Iterable[Node]) -> tuple[Rewrite, ...]:
    """The rewrites that brought in the e-nodes, each once."""
    found = (graph.origins.get(node) for node in nodes)
    return tuple(dict.fromkeys(r for r in found if r is not None))
