"""Objectives: what a search over several models is to make small (Ansor, section 6, table 2).

With g_i the best seconds of task i and w_ji how often model j runs it, model j takes
l_j = sum over i of w_ji * g_i.  An objective says by how much its value falls for every second
that a task gets faster: its exact derivative, where the original takes a difference over a fixed
tenth of a millisecond, which is longer than many tasks take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from whet.core.errors import UsageError, check, fail
from whet.core.types import Array


@dataclass(frozen=True, eq=False)
class Standing:
    """The state of all tasks."""

    weights: Array
    """How often each model (row) runs each task (column)."""
    seconds: Array
    """The best of every task; what the model expects where nothing is known."""
    idle: Array
    """Trials of every task since it last got faster."""

    @property
    def latencies(self) -> Array:
        """Seconds of every model."""
        return np.maximum(self.weights @ self.seconds, 1e-12)


class Objective(Protocol):
    """The value that is to become small."""

    def value(self, standing: Standing) -> float:
        """The figure itself."""

    def slopes(self, standing: Standing) -> Array:
        """The fall of the value, for every task, per second that the task gets faster.

        A task with slope 0 gets no more trials; when all slopes are 0 the search is over.
        """


@dataclass(frozen=True)
class Total:
    """f1: the sum of the models' latencies."""

    def value(self, standing: Standing) -> float:
        return float(standing.latencies.sum())

    def slopes(self, standing: Standing) -> Array:
        return standing.weights.sum(axis=0)


@dataclass(frozen=True)
class Targets:
    """f2: the sum of max(latency, target): a model that is fast enough gets no more trials."""

    targets: tuple[float, ...]

    def value(self, standing: Standing) -> float:
        return float(np.maximum(standing.latencies, self.targets).sum())

    def slopes(self, standing: Standing) -> Array:
        late = standing.latencies > np.asarray(self.targets)
        return np.asarray(late.astype(np.float64) @ standing.weights)


@dataclass(frozen=True)
class Speedup:
    """f3: minus the geometric mean of reference / latency: models count by their ratios."""

    references: tuple[float, ...]

    def value(self, standing: Standing) -> float:
        return -self._mean(standing)

    def slopes(self, standing: Standing) -> Array:
        latencies = standing.latencies
        by_model = self._mean(standing) / (len(latencies) * latencies)
        return np.asarray(by_model @ standing.weights)

    def _mean(self, standing: Standing) -> float:
        return float(np.exp(np.mean(np.log(np.asarray(self.references) / standing.latencies))))


@dataclass(frozen=True)
class EarlyStopping:
    """f4: the sum of latencies, where a task that has not got faster for `patience` trials
    counts as finished."""

    patience: int

    def value(self, standing: Standing) -> float:
        return Total().value(standing)

    def slopes(self, standing: Standing) -> Array:
        return np.where(standing.idle < self.patience, Total().slopes(standing), 0.0)


OBJECTIVES = ("total", "targets", "speedup", "early-stopping")
DEFAULT_PATIENCE = 64


def make_objective(
    name: str,
    models: int,
    *,
    targets: Sequence[float] = (),
    references: Sequence[float] = (),
    patience: int | None = None,
) -> Objective:
    """The objective of that name for so many models; figures that it does not use are an error.

    One target or reference stands for all models.  References may be left out: models then
    count by how much faster each gets, whatever they are compared with.
    """
    uses = {"targets": "targets", "speedup": "references", "early-stopping": "patience"}
    given = {"targets": bool(targets), "references": bool(references), "patience": bool(patience)}
    for option, is_given in given.items():
        check(not is_given or uses.get(name) == option, "WH1002",
              f"the objective '{name}' has no {option}", kind=UsageError)  # fmt: skip
    match name:
        case "total":
            return Total()
        case "targets":
            return Targets(_one_each("targets", targets, models))
        case "speedup":
            return Speedup(_one_each("references", references or (1.0,), models))
        case "early-stopping":
            return EarlyStopping(patience or DEFAULT_PATIENCE)
    fail("WH1002", f"there is no objective '{name}'", hint=", ".join(OBJECTIVES), kind=UsageError)


def _one_each(what: str, figures: Sequence[float], models: int) -> tuple[float, ...]:
    check(len(figures) in (1, models), "WH1002",
          f"{len(figures)} {what} for {models} models", hint="one for all models, or one each",
          kind=UsageError)  # fmt: skip
    check(all(f > 0 for f in figures), "WH1002", f"{what} must be positive", kind=UsageError)
    return tuple(figures) * (models if len(figures) == 1 else 1)
