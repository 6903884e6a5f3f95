"""Tuning from the outside: the tasks of graphs, the records they leave, and how they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from whet.build.tasks import graph_steps
from whet.core.config import process_config
from whet.core.target import Target
from whet.db.store import Database
from whet.graph.graph import Graph
from whet.ops.base import Numeric
from whet.tune.objectives import Objective
from whet.tune.policies import POLICIES, Policy
from whet.tune.report import Report, Watch
from whet.tune.search import WeightedTask
from whet.tune.tuner import Budget, Tuner


def weighted_tasks(
    graphs: Sequence[Graph], target: Target, threads: int, numerics: Numeric
) -> list[WeightedTask]:
    """The distinct tasks of one or several graphs, with how often each graph has them."""
    steps = [list(graph_steps(graph, target, threads, numerics)) for graph in graphs]
    first = {s.key: s for graph in reversed(steps) for s in reversed(graph)}
    counts = [Counter(s.key for s in graph) for graph in steps]
    order = dict.fromkeys(s.key for graph in steps for s in graph)
    return [
        WeightedTask(first[key].task, first[key].name, tuple(c[key] for c in counts))
        for key in order
    ]


def tune_graphs(
    graphs: Sequence[Graph],
    target: Target,
    threads: int,
    budget: Budget,
    *,
    numerics: Numeric = "real",
    policy: Callable[[], Policy] = POLICIES["default"],
    objective: Objective | None = None,
    watch: Watch | None = None,
    database: Path | None = None,
    seed: int = 0,
) -> list[Report]:
    """Search for faster kernels; what is found is in the database at any moment."""
    from whet.measure.measurer import Measurer  # starts processes: only when needed

    tasks = weighted_tasks(graphs, target, threads, numerics)
    with Database(database or process_config().db.path) as records, Measurer() as measurer:
        tuner = Tuner(tasks, target, threads, records, measurer, numerics=numerics,
                      policy=policy, objective=objective, seed=seed)  # fmt: skip
        tuner.run(budget, watch)
        return tuner.reports()
