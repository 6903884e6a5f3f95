"""Contractions whose result is split: parts are finished and stored by one kernel."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE, TARGET, guarded_results, native
from tests.build.divided_graphs import divided_graph
from tests.build.schedules import RandomSchedule, check_results
from whet.build.native import build
from whet.core.types import Array
from whet.graph.graph import Graph

GRAPHS_PER_TEST = 12


def arrays_of(graph: Graph, rng: np.random.Generator) -> tuple[Array, ...]:
    return tuple(rng.uniform(-1, 1, v.tensor_type.shape).astype(np.float32) for v in graph.inputs)


@pytest.mark.parametrize("first", range(0, 96, GRAPHS_PER_TEST))
def test_any_schedule_of_parts_is_right(first: int) -> None:
    """Whether parts are stored by one kernel or not, and whichever that is."""
    drawn: Counter[str] = Counter()
    for seed in range(first, first + GRAPHS_PER_TEST):
        rng = np.random.default_rng(seed)
        graph = divided_graph(rng, int(rng.integers(0, 4)))
        arrays, schedule = arrays_of(graph, rng), RandomSchedule(rng, int(rng.integers(1, 3)))
        chance = np.random.default_rng([seed, 1])
        executable = build(
            graph, TARGET, schedule.threads, NO_CACHE, schedule=schedule,
            evidence=lambda together, apart, chance=chance: bool(chance.random() < 0.7),
        )  # fmt: skip
        found = list(guarded_results(executable, graph, arrays))
        check_results(found, graph, arrays, f"seed {seed}: {schedule.shown}\n{graph}")
        drawn.update(schedule.drawn)
    assert drawn["divided"] > 0 or drawn["folded"] > 0


@pytest.mark.parametrize("seed", range(500, 540))
def test_default_schedules_of_parts_are_right(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = divided_graph(rng, int(rng.integers(0, 4)))
    arrays = arrays_of(graph, rng)
    found = list(guarded_results(native(graph, threads=1 + seed % 2), graph, arrays))
    check_results(found, graph, arrays, f"seed {seed}\n{graph}")
