"""Tuning from the outside: the tasks of graphs, the records they leave, and how they are used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from whet.build.tasks import graph_steps
from whet.core.config import process_config
from whet.core.target import Target
from whet.db.store import Database
from whet.graph.graph import Graph
from whet.ops.base import Numeric
from whet.tune.tuner import Report, Tuner, Watch, WeightedTask


def weighted_tasks(
    graphs: Sequence[Graph], target: Target, threads: int, numerics: Numeric
) -> list[WeightedTask]:
    """The distinct tasks of one or several graphs, with how often they occur."""
    steps = [s for graph in graphs for s in graph_steps(graph, target, threads, numerics)]
    first = {step.key: step for step in reversed(steps)}
    keys = [step.key for step in steps]
    return [
        WeightedTask(first[key].task, first[key].name, keys.count(key))
        for key in dict.fromkeys(keys)
    ]


def tune_graphs(
    graphs: Sequence[Graph],
    target: Target,
    threads: int,
    seconds: float,
    *,
    numerics: Numeric = "real",
    trials: int | None = None,
    watch: Watch | None = None,
    database: Path | None = None,
) -> list[Report]:
    """Search for faster kernels; what is found is in the database at any moment."""
    from whet.measure.measurer import Measurer  # starts processes: only when needed

    tasks = weighted_tasks(graphs, target, threads, numerics)
    with Database(database or process_config().db.path) as records, Measurer() as measurer:
        tuner = Tuner(tasks, target, threads, records, measurer, numerics=numerics)
        tuner.run(seconds, trials, watch)
        return tuner.reports()
