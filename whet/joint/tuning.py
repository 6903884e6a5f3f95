"""Tuning of graphs: their tasks, how often each runs, and the records that tuning leaves."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from whet.build.backend import backend_of
from whet.build.tasks import graph_steps
from whet.core.target import Target
from whet.db.place import records_path
from whet.db.store import Database
from whet.graph.graph import Graph
from whet.ir.tensor import Tensor
from whet.joint.refining import kept_seconds, refine_graphs
from whet.measure.runner import Runner
from whet.ops.base import Numeric
from whet.tasks.price import Evidence, no_evidence
from whet.tasks.steps import Step
from whet.tune.objectives import Objective
from whet.tune.policies import Policy
from whet.tune.refine import RefineTools
from whet.tune.report import Refining, Report, Watch
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
    used = _counted([used for used, _ in pairs])
    keys = {w.task.key for w in used}
    others = [w for w in _counted([others for _, others in pairs]) if w.task.key not in keys]
    return [*used, *(replace(w, alternative=True) for w in others)]


def _counted(steps: Sequence[Sequence[tuple[Step, int]]]) -> list[WeightedTask]:
    """The distinct tasks of the steps of several graphs, each of which runs so many times."""
    first = {s.key: s for graph in reversed(steps) for s, _ in reversed(graph)}
    counts = [Counter[str]() for _ in steps]
    for count, found in zip(counts, steps, strict=True):
        for step, times in found:
            count[step.key] += times
    order = dict.fromkeys(s.key for graph in steps for s, _ in graph)
    same = Counter(first[key].name for key in order)
    return [
        WeightedTask(
            first[key].task,
            first[key].name if same[first[key].name] == 1 else with_shapes(first[key]),
            tuple(c[key] for c in counts),
        )
        for key in order
    ]


def with_shapes(step: Step) -> str:
    """The name of a step with the shapes of what it reads and writes, to tell it from others."""

    def shown(tensors: Iterable[Tensor]) -> str:
        return ", ".join("x".join(map(str, t.shape)) or "scalar" for t in tensors)

    return f"{step.name} {shown(step.task.inputs)} -> {shown(step.task.outputs)}"


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
    """Search for faster kernels, one by one and then, where that says too little, inside the
    graphs' networks; what is found is in the database at any moment."""
    start, kept = time.monotonic(), kept_seconds(target, budget.seconds)
    tasks = weighted_tasks(graphs, target, threads, numerics)
    with _opened(target, database) as (records, runner):
        tuner = Tuner(tasks, target, threads, records, runner, numerics=numerics, **options)
        tuner.run(replace(budget, seconds=budget.seconds - kept), watch)
        reports = tuner.reports()
        if kept:
            whole, spent = budget.seconds, time.monotonic() - start
            tools = RefineTools(target, threads, records, runner, numerics)
            refine_graphs(graphs, tools, kept if math.isinf(whole) else whole - spent,
                          watch, reports, spent)  # fmt: skip
    return reports


def refine_tuned(
    graphs: Sequence[Graph],
    target: Target,
    threads: int,
    seconds: float,
    *,
    numerics: Numeric = "real",
    watch: Watch | None = None,
    database: Path | None = None,
) -> list[Refining]:
    """Searches inside the networks of graphs whose tasks have been tuned."""
    with _opened(target, database) as (records, runner):
        tools = RefineTools(target, threads, records, runner, numerics)
        return refine_graphs(graphs, tools, seconds, watch)


class TuneOptions(TypedDict, total=False):
    """Options of a search, where it differs from the usual."""

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
    with _opened(target, database) as (records, runner):
        tuner = Tuner(tasks, target, threads, records, runner, numerics=numerics, **options)
        tuner.run(budget, watch)
        return tuner.reports()


@contextmanager
def _opened(target: Target, database: Path | None) -> Iterator[tuple[Database, Runner[Any]]]:
    """The database to write to, and what measures kernels."""
    path, runner = records_path(database), backend_of(target).runner()
    with Database(path, to_write=True) as records, closing(runner):
        yield records, runner
