"""Networks with times that are made up: what a kernel takes depends on the one in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whet.build.tasks import planned
from whet.core.dtypes import f32
from whet.core.gpu import PRESETS, GpuTarget
from whet.core.outcomes import Outcome
from whet.core.types import TensorType
from whet.db.store import Database
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.measure.kernel_process import Ran
from whet.measure.networks import Choices
from whet.measure.records import record_of
from whet.measure.results import Candidate, Comparison, Measured
from whet.measure.statistics import Clock, is_better_network, network_turns
from whet.measure.trials import comparison_of, undecided
from whet.ops.activation import Relu
from whet.ops.matmul import MatMul
from whet.tasks.steps import Plan, Step
from whet.tasks.task import Task
from whet.tune.space import make_space

TARGET = PRESETS["cuda-sm_90a"]
DEFAULT_WIDTHS = (48, 64, 48, 96)
US = 1e-6


def products(*widths: int) -> Graph:
    """Products of matrices one behind the other, of 32 columns and then those widths."""
    b = GraphBuilder()
    x = value = b.input("x", TensorType((24, 32), f32))
    rng, columns = np.random.default_rng(0), 32
    for width in widths:
        weights = b.constant(rng.standard_normal((columns, width)).astype(np.float32))
        value, columns = b.one(Relu(), b.one(MatMul(), value, weights)), width
    return Graph((x,), (value,), ("y",))


def plan_of(*widths: int) -> Plan:
    (plan,) = planned(products(*(widths or DEFAULT_WIDTHS)), TARGET, 1, "real")
    return plan


def kernels_of(task: Task, count: int) -> list[Candidate]:
    """Candidates that differ in more than the moment at which the next kernel is let in."""
    space, found = make_space(task, TARGET, 1), []
    table = next(t for t in space.tables if "trigger" in t.names)
    for row in range(len(table.costs)):
        if all(_tile(table.candidate(row)) != _tile(c) for c in found):
            found.append(table.candidate(row))
        if len(found) == count:
            return found
    raise AssertionError("too few candidates")


def _tile(candidate: Candidate) -> dict[str, int]:
    return {name: n for name, n in candidate.holes.items() if name != "trigger"}


def measured_alone(
    database: Database, plan: Plan, count: int = 3, *, apart: float = 0.05
) -> dict[str, list[Candidate]]:
    """The candidates of every task, which take 10 us by themselves, and each `apart` more."""
    made: dict[str, list[Candidate]] = {}
    for key, task in plan.tasks.items():
        made[key] = kernels_of(task, count)
        for number, candidate in enumerate(made[key]):
            samples = (10 * US * (1 + apart * number),) * 9
            end = Measured(candidate, Outcome.OK, samples, checked=True)
            database.add([record_of(end, task, TARGET, 1)])
    return made


Cost = Callable[[Candidate | None, Candidate], float]
"""Seconds of a kernel behind another, of which the first has none."""


class Time:
    """A clock that stands still unless somebody spends time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class MadeUpNetwork:
    """A plan's kernels behind each other; see `whet.measure.networks.TimedNetwork`."""

    plan: Plan
    cost: Cost
    noise: float = 0.0
    """The standard deviation of a sample."""
    seed: int = 0
    failing: Mapping[str, Outcome] = field(default_factory=dict)
    """The ends of networks with these candidates, by their keys."""
    time: Time = field(default_factory=Time)
    interrupted_at: int = -1
    compared: list[tuple[dict[str, Candidate], dict[str, Candidate]]] = field(default_factory=list)
    built: list[Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def seconds(self, choices: Choices) -> float:
        total, before = 0.0, None
        for step in self.plan.steps:
            assert isinstance(step, Step)
            total += self.cost(before, choices[step.key])
            before = choices[step.key]
        return total

    def clock(self, choices: Choices) -> Clock:
        seconds = self.seconds(choices)
        return lambda calls: float(calls * seconds * self.rng.normal(1.0, self.noise))

    def compare(self, new: Choices, old: Choices, seconds: float) -> Comparison:
        self.compared.append((dict(new), dict(old)))
        if len(self.compared) == self.interrupted_at:
            raise KeyboardInterrupt
        self.time.now += seconds
        for candidate in new.values():
            if candidate.key in self.failing:
                return undecided(self.failing[candidate.key], "made up")
        clocks = self.clock(new), self.clock(old)
        a, b = network_turns(*clocks, lambda: None, seconds)
        return comparison_of(Ran(Outcome.OK, "", (tuple(a), tuple(b))), is_better_network)

    def build_ahead(self, wanted: Iterable[tuple[Task, Candidate]]) -> None:
        self.built += (candidate for _, candidate in wanted)


@dataclass(eq=False)
class MadeUpRunner:
    """Checks of kernels by themselves, all of which take the same."""

    wrong: frozenset[str] = frozenset()
    """Candidates that give wrong answers, by their keys."""
    asked: list[Candidate] = field(default_factory=list)

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: GpuTarget
    ) -> Iterator[Measured]:
        for c in candidates:
            self.asked.append(c)
            if c.key in self.wrong:
                yield Measured(c, Outcome.WRONG_ANSWER, message="made up")
            else:
                yield Measured(c, Outcome.OK, (US,) * 9, checked=True)

    def compare(
        self, task: Task, a: Candidate, b: Candidate, threads: int, target: GpuTarget
    ) -> Comparison:
        raise AssertionError("nothing is compared by itself")

    def close(self) -> None: ...
