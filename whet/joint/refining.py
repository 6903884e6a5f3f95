"""Searches inside the networks of graphs, behind the search for kernels one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from whet.build.backend import backend_of
from whet.build.tasks import planned
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.target import Target
from whet.graph.graph import Graph
from whet.tasks.steps import Plan
from whet.tune.refine import Refiner, RefineTools
from whet.tune.report import Refining, Report, Status, Watch
from whet.tune.schedule import Schedules

SHARE = 0.2
"""The part of a search's budget that is kept for it."""
SECONDS = 30.0
"""The most that it takes where time has no limit."""


def kept_seconds(target: Target, budget: float) -> float:
    """Seconds of a budget that are kept for searches inside networks."""
    if not backend_of(target).times_networks:
        return 0.0
    return SECONDS if math.isinf(budget) else SHARE * budget


def refine_graphs(
    graphs: Sequence[Graph],
    tools: RefineTools,
    seconds: float,
    watch: Watch | None = None,
    reports: Sequence[Report] = (),
    spent: float = 0.0,
) -> list[Refining]:
    """Exchanges kernels inside the networks of graphs, which are their native segments.

    Equal segments are one network.  Each has as much of the time as it takes of all.  Who watches
    is told the `reports` of the tasks, which were searched for in `spent` seconds, with the state
    of the network.
    """
    start = tools.clock()
    trials = sum(r.trials for r in reports)

    def tell(state: Refining) -> None:
        if watch is not None:
            here = tools.clock() - start
            left = max(0.0, seconds - here)
            watch(reports, Status(trials, spent + here, left, refining=state))

    refiners = _refiners(graphs, tools)
    parts = [sum(r.seconds.values()) for r in refiners]
    total = sum(parts) or 1.0
    return [r.run(seconds * part / total, tell) for r, part in zip(refiners, parts, strict=True)]


def _refiners(graphs: Sequence[Graph], tools: RefineTools) -> list[Refiner]:
    target, threads, numerics = tools.target, tools.threads, tools.numerics
    known = Schedules(target, threads, numerics, tools.database)
    cache, backend = FileCache(process_config().cache), backend_of(target)
    plans: dict[str, Plan] = {
        plan.key: plan
        for graph in graphs
        for plan in planned(graph, target, threads, numerics, known.faster)
    }
    made = []
    for number, plan in enumerate(plans.values(), 1):
        name = "network" if len(plans) == 1 else f"network {number} of {len(plans)}"
        timed = backend.timed_network(plan, target, numerics, tools.runner, cache)
        made.append(Refiner(plan, timed, tools, name))
    return made
