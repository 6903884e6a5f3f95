"""The tasks of a graph: what a tuner works on."""

from __future__ import annotations

from whet.build.kernels import KernelMaker
from whet.build.plan import Step
from whet.build.planning import plan_graph
from whet.build.prices import Evidence, no_evidence
from whet.core.target import Target
from whet.graph.graph import Graph
from whet.graph.passes import expand_composites
from whet.ops.base import Numeric
from whet.schedule.default import default_schedule


def graph_steps(
    graph: Graph,
    target: Target,
    threads: int,
    numerics: Numeric,
    evidence: Evidence = no_evidence,
) -> tuple[list[Step], list[Step]]:
    """The steps of a graph that have a task, in the order in which they run, and those of other
    plans, which were expected to take longer."""
    schedule = default_schedule(target, threads, numerics)
    maker = KernelMaker(target, schedule, threads, numerics, evidence=evidence)
    _, plans, _ = plan_graph(expand_composites(graph), maker)
    steps = [s for plan in plans.values() for s in plan.steps if isinstance(s, Step)]
    return steps, [s for plan in plans.values() for s in plan.others]
