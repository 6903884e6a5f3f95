"""Tuning from the outside: the tasks of graphs, the records they leave, and how they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from whet.build.plan import Step
from whet.build.prices import Evidence, no_evidence
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
    graphs: Sequence[Graph],
    target: Target,
    threads: int,
    numerics: Numeric,
    evidence: Evidence = no_evidence,
) -> list[WeightedTask]:
    """The distinct tasks of one or several graphs, with how often each graph has them.

    Last come those that would replace others if they turned out to be faster.
    """
    pairs = [graph_steps(graph, target, threads, numerics, evidence) for graph in graphs]
    used = _counted([steps for steps, _ in pairs])
    keys = {w.task.key for w in used}
    others = [w for w in _counted([others for _, others in pairs]) if w.task.key not in keys]
    return [*used, *(replace(w, alternative=True) for w in others)]


def _counted(steps: Sequence[Sequence[Step]]) -> list[WeightedTask]:
    """The distinct tasks of the steps of several graphs."""
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
