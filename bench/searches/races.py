"""Searches that race each other on recorded trials: tasks, policies, and how soon they are good."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from harness.replay import Replay
from whet.core.cpu import CpuTarget
from whet.frontend.onnx import import_model
from whet.graph.passes import optimize
from whet.joint.tuning import weighted_tasks
from whet.tune.policies import Known, Policy
from whet.tune.policies.chance import RandomSearch
from whet.tune.search import WeightedTask
from whet.tune.space import Row, Space, make_space
from whet.tune.timing import Timing
from zoo.operators import Case

OPERATORS = {"C1D": 1, "C2D": 1, "C3D": 1, "GMM": 0, "GRP": 2, "DIL": 2, "DEP": 0, "T2D": 1,
             "CAP": 3, "NRM": 1}  # fmt: skip
"""The ten families, each with the number of a shape that does not take long."""
ROUND = 8
"""Trials between two proposals, as the tuner makes them."""
MOST_SEEDS = 3
"""Of the questions that take long."""


@dataclass(frozen=True)
class Machine:
    """What is measured on."""

    target: CpuTarget
    threads: int


@dataclass(frozen=True, eq=False)
class Subject:
    """A task to search for."""

    name: str
    task: WeightedTask
    space: Space


def operator_subject(name: str, where: Machine) -> Subject:
    """The task of one of the ten families."""
    return largest_task(name, Case(name, OPERATORS[name], 1).model(), where)


def largest_task(name: str, model: object, where: Machine) -> Subject:
    """The task of a model that does most of its work."""
    task = max(tasks_of(model, where), key=lambda t: t.task.operations)
    return Subject(name, task, make_space(task.task, where.target, where.threads))


def tasks_of(model: object, where: Machine) -> list[WeightedTask]:
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(cast(onnx.ModelProto, model), path)
        graph = optimize(import_model(str(path)).graph)
    return weighted_tasks([graph], where.target, where.threads, "real")


@dataclass(frozen=True)
class Pool:
    """Chance, over a fixed number of rows, so that the seeds share their trials."""

    size: int

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        rows = RandomSearch().propose(space, {}, self.size, np.random.default_rng(0))
        fresh = [row for row in rows if row not in known]
        return [fresh[n] for n in rng.permutation(len(fresh))[:count]]


def race(
    subject: Subject, policy: Policy, trials: int, seed: int, replay: Replay, where: Machine
) -> list[float]:
    """The best seconds after every trial."""
    known = trials_by(subject, policy, trials, seed, replay, where)
    return [float(s) for s in np.minimum.accumulate([float(t) for t in known.values()])]


def trials_by(
    subject: Subject, policy: Policy, trials: int, seed: int, replay: Replay, where: Machine,
    batch: int = ROUND, known: Mapping[Row, Timing] | None = None,
) -> dict[Row, Timing]:  # fmt: skip
    """The trials that are known and those that a policy makes after them, in their order.

    Between two proposals there are `batch` trials.
    """
    rng, space = np.random.default_rng(seed), subject.space
    known = dict(known or {})
    while len(known) < trials:
        rows = policy.propose(space, known, min(batch, trials - len(known)), rng)
        if not rows:
            break
        candidates = [space.candidate(r) for r in rows]
        for row, m in zip(
            rows, replay.measure(subject.task.task, candidates, where.threads, where.target)
        ):
            known[row] = Timing(m.samples if m.ok else ())
    return known


def trials_to(best: Sequence[float], share: float, reference: float) -> float:
    """Trials until that share of the reference's speed was reached; infinity for never."""
    return next((n + 1.0 for n, s in enumerate(best) if s * share <= reference), float("inf"))


def share_of(best: Sequence[float], reference: float) -> float:
    return reference / best[-1] if best else 0.0
