"""The tasks of a graph: what a tuner works on."""

from __future__ import annotations

from collections.abc import Iterator

from whet.build.control import inner_steps
from whet.build.kernels import KernelMaker
from whet.build.plan import Step
from whet.build.planning import plan_graph
from whet.core.target import Target
from whet.graph.graph import Graph
from whet.graph.passes import expand_composites
from whet.ops.base import Numeric
from whet.schedule.default import default_schedule


def graph_steps(
    graph: Graph, target: Target, threads: int, numerics: Numeric
) -> Iterator[tuple[Step, int]]:
    """The steps of a graph that have a task, in the order in which they run, and how often."""
    schedule = default_schedule(target, threads, numerics)
    maker = KernelMaker(target, schedule, threads, numerics)
    _, plans, _ = plan_graph(expand_composites(graph), maker)
    for plan in plans.values():
        for outer in plan.steps:
            for step, times in inner_steps(outer):
                if isinstance(step, Step):
                    yield step, times
