"""Tuning for benchmarks: in a database of their own, which contestants' processes use too."""

from __future__ import annotations

import os
from pathlib import Path

from whet.api.engines import default_engine
from whet.api.native import Native
from whet.core.config import process_config
from whet.frontend.onnx import import_model
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from whet.joint.tuning import tune_tasks, weighted_tasks
from whet.tune.report import Report, Watch
from whet.tune.search import WeightedTask
from whet.tune.tuner import Budget


def use_database(path: Path) -> None:
    """From now on, here and in processes started later, records are kept in that file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.environ["WHET_DB_PATH"] = str(path)
    process_config.cache_clear()


def native_engine() -> Native:
    engine = default_engine()
    if not isinstance(engine, Native):
        raise SystemExit("native code is needed, and cannot be generated here")
    return engine


def graph_of(path: Path) -> Graph:
    """The model after all passes, as it is written: before a cheaper graph is searched for."""
    return optimize(import_model(path).graph)


def tasks_of(path: Path, threads: int) -> list[WeightedTask]:
    """The tasks of the graph that the model is compiled from."""
    engine = native_engine()
    graph = engine.rewrite(graph_of(path), threads, "real")
    return weighted_tasks([graph], engine.target, threads, "real")


def tune(
    tasks: list[WeightedTask], threads: int, budget: Budget, watch: Watch | None = None
) -> list[Report]:
    return tune_tasks(tasks, native_engine().target, threads, budget, watch=watch)
