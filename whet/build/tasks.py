"""The tasks of a graph: what a tuner works on."""

from __future__ import annotations

from whet.build.backend import backend_of
from whet.core.target import Target
from whet.graph.graph import Graph
from whet.graph.passes import expand_composites
from whet.ops.base import Numeric
from whet.tasks.plan import plan_graph
from whet.tasks.price import Evidence, no_evidence
from whet.tasks.steps import Plan, Step, inner_steps, other_steps


def planned(
    graph: Graph,
    target: Target,
    threads: int,
    numerics: Numeric,
    evidence: Evidence = no_evidence,
) -> tuple[Plan, ...]:
    """The plans of a graph's native pieces, as a build makes them."""
    backend = backend_of(target)
    price = backend.price(target, threads, numerics, evidence, graph.constant_bytes)
    return tuple(plan_graph(expand_composites(graph), price, backend.holds).plans.values())


def graph_steps(
    graph: Graph,
    target: Target,
    threads: int,
    numerics: Numeric,
    evidence: Evidence = no_evidence,
) -> tuple[list[tuple[Step, int]], list[tuple[Step, int]]]:
    """The steps of a graph that have a task, in the order in which they run and how often, and
    those of other plans, which were expected to take longer."""
    plans = planned(graph, target, threads, numerics, evidence)
    used = [pair for plan in plans for s in plan.steps for pair in inner_steps(s)]
    others = [pair for plan in plans for pair in other_steps(plan)]
    return [(s, n) for s, n in used if isinstance(s, Step)], others
