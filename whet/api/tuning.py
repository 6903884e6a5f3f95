"""Tuning from the outside: the tasks of graphs, the records they leave, and how they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from whet.build.tasks import graph_steps
from whet.core.config import process_config
from whet.core.target import Target
from whet.db.store import Database
from whet.graph.graph import Graph
from whet.ops.base import Numeric
from whet.tune.objectives import Objective
from whet.tune.policies import Policy
from whet.tune.report import Report, Watch
from whet.tune.search import WeightedTask
from whet.tune.tuner import Budget, Tuner


def weighted_tasks(
    graphs: Sequence[Graph], target: Target, threads: int, numerics: Numeric
) -> list[WeightedTask]:
    """The distinct tasks of one or several graphs, with how often each graph runs them."""
    steps = [list(graph_steps(graph, target, threads, numerics)) for graph in graphs]
    first = {s.key: s for graph in reversed(steps) for s, _ in reversed(graph)}
    counts = [Counter[str]() for _ in graphs]
    for count, found in zip(counts, steps, strict=True):
        for step, times in found:
            count[step.key] += times
    order = dict.fromkeys(s.key for graph in steps for s, _ in graph)
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
    watch: Watch | None = None,
    database: Path | None = None,
    **options: Unpack[TuneOptions],
) -> list[Report]:
    """Search for faster kernels; what is found is in the database at any moment."""
    tasks = weighted_tasks(graphs, target, threads, numerics)
    return tune_tasks(tasks, target, threads, budget, numerics=numerics, watch=watch,
                      database=database, **options)  # fmt: skip


class TuneOptions(TypedDict, total=False):
    """How to search, where it differs from the usual."""

    policy: Callable[[], Policy]
    objective: Objective | None
    sketches: Callable[[str], bool]
    """Which sketches, by name, may be used."""
    seed: int
    trials_per_round: int


def tune_tasks(
    tasks: Sequence[WeightedTask],
    target: Target,
    threads: int,
    budget: Budget,
    *,
    numerics: Numeric = "real",
    watch: Watch | None = None,
    database: Path | None = None,
    **options: Unpack[TuneOptions],
) -> list[Report]:
    """The same for tasks that are known already."""
    from whet.measure.measurer import Measurer  # starts processes: only when needed

    with Database(database or process_config().db.path) as records, Measurer() as measurer:
        tuner = Tuner(tasks, target, threads, records, measurer, numerics=numerics, **options)
        tuner.run(budget, watch)
        return tuner.reports()
