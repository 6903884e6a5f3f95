"""One block by equality saturation: all graphs at once, extracted, then priced as graphs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from whet.graph.graph import Node
from whet.joint.saturation.surrogate import Surrogate
from whet.joint.search import Found, State
from whet.superopt.apply.patterns import Patterns
from whet.superopt.apply.rewrite import Part, Rewrite
from whet.superopt.saturate.egraph import EGraph
from whet.superopt.saturate.optimal import optimal
from whet.superopt.saturate.problem import Choice, Problem, extraction, greedy
from whet.superopt.saturate.saturation import Limits, saturate

SHARES = (0.03, 0.3, 1.0)
"""What is left of light operators, in turn: mostly fused, in between, kernels of their own."""
GROWING = 0.5
"""The share of the time in which the e-graph grows; the rest is for extraction."""


def saturated_search(
    start: Part,
    patterns: Patterns | None,
    surrogate: Surrogate,
    price: Callable[[Part], float],
    limits: Limits,
) -> Found:
    """The cheapest of the graphs that are extracted from the e-graph of the part."""
    until = time.perf_counter() + limits.seconds
    first = best = State(start, price(start))
    made = saturate(start, patterns, replace(limits, seconds=GROWING * limits.seconds))
    seen = {start.outputs}
    for n, share in enumerate(SHARES):
        left = until - time.perf_counter()
        if left <= 0:
            break
        found = extraction(made.graph, lambda node: surrogate(node, share))  # noqa: B023
        choice = best_choice(found.problem, left / (len(SHARES) - n))
        part, nodes = found.part(choice) if choice is not None else (start, ())
        if part.outputs not in seen:
            seen.add(part.outputs)
            state = State(part, price(part), rules_behind(made.graph, nodes))
            best = min(best, state, key=lambda s: s.seconds)
    return Found(first, best, len(seen), made.complete, "saturation")


def best_choice(problem: Problem, seconds: float) -> Choice | None:
    """The optimal choice, or the greedy one where that is all that the time allows."""
    quick, exact = greedy(problem), optimal(problem, seconds)
    choices = [c for c in (exact, quick) if c is not None]
    return min(choices, key=problem.cost, default=None)


def rules_behind(graph: EGraph, nodes: tuple[Node, ...]) -> tuple[Rewrite, ...]:
    """The rewrites that brought in the e-nodes, each once."""
    found = (graph.origins.get(node) for node in nodes)
    return tuple(dict.fromkeys(r for r in found if r is not None))
