"""Random legal schedules: any sketch that fits, any candidate of its space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from tests.build.comparing import NO_CACHE, TARGET, guarded_results
from tests.build.random_graphs import random_graph
from whet.build.native import build
from whet.core.cpu import CpuTarget
from whet.core.errors import NoCodeError, ScheduleError
from whet.core.types import Array
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import SKETCHES
from whet.tasks.task import Task

TOLERANCE = 2e-5


class RandomSchedule:
    """A schedule that draws; it counts what it has drawn, by sketch.

    From the sketches that draft defaults, or with `every` from all.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        threads: int,
        target: CpuTarget = TARGET,
        *,
        every: bool = False,
    ) -> None:
        self.rng, self.threads, self.target = rng, threads, target
        self.sketches = [
            s for s in SKETCHES.values() if s.machine == "cpu" and (every or s.drafts_default)
        ]
        self.drawn: dict[str, int] = {}
        self.refused = 0
        self.shown: list[str] = []

    def __call__(self, task: Task, name: str) -> Kernel:
        fitting = [(s, form) for s in self.sketches for form in [s.fits(task)] if form]
        for n in self.rng.permutation(len(fitting)):
            sketch, form = fitting[n]
            population = sketch.space(form, self.target, self.threads)
            count = len(next(iter(population.values())))
            if not count:
                continue
            row = int(self.rng.integers(count))
            holes = {hole: int(column[row]) for hole, column in population.items()}
            try:
                kernel = sketch.lower(form, holes, name)
            except ScheduleError:
                if sketch.drafts_default:
                    raise
                self.refused += 1  # rules judge structures, the primitives every single row
                continue
            self.drawn[sketch.name] = self.drawn.get(sketch.name, 0) + 1
            self.shown.append(f"{sketch.name} {holes}")
            return kernel
        raise NoCodeError("WH1303", "no sketch fits")


def check_random(seed: int, length: int = 4, *, every: bool = False) -> RandomSchedule:
    """A random graph under a random schedule gives what the interpreter gives."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, length)
    arrays = tuple(rng.uniform(-1, 1, v.tensor_type.shape).astype(np.float32) for v in graph.inputs)
    schedule = RandomSchedule(rng, threads=int(rng.integers(1, 3)), every=every)
    chance = np.random.default_rng([seed, 1])
    executable = build(
        graph, TARGET, schedule.threads, NO_CACHE, schedule=schedule,
        evidence=lambda together, apart: bool(chance.random() < 0.5),
    )  # fmt: skip
    found = list(guarded_results(executable, graph, arrays))
    check_results(found, graph, arrays, f"seed {seed}: {schedule.shown}\n{graph}")
    return schedule


def check_results(
    found: Iterable[Sequence[Array]], graph: Graph, arrays: tuple[Array, ...], what: str
) -> None:
    """All results are what the interpreter gives, up to rounding."""
    exact, rounded = interpret(graph, arrays, precise=True), interpret(graph, arrays)
    for results in found:
        for got, want, plain in zip(results, exact, rounded, strict=True):
            # Where numbers cancel, plain NumPy is no better: its own error is the yardstick.
            noise = float(np.abs(plain - want).max(initial=0))
            scale = max(float(np.abs(want).max(initial=0)), 1.0)
            np.testing.assert_allclose(
                got, want, rtol=TOLERANCE, atol=TOLERANCE * scale + 8 * noise, err_msg=what
            )


def check_many(seeds: range, *, every: bool = False) -> Counter[str]:
    """How often each sketch was drawn over all seeds."""
    total: Counter[str] = Counter()
    for seed in seeds:
        total.update(check_random(seed, every=every).drawn)
    return total
