"""Trials as tables to learn from: labels and weights are derived here, never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from whet.core.errors import check
from whet.core.types import Array
from whet.tune.features.autotvm import curve_features, itervar_features, knob_features
from whet.tune.features.program import Rows, features_of, summary_of
from whet.tune.models.protocol import Batch, CostModel, Trials

Kind = Literal["statements", "programs", "knob", "itervar", "curve"]
"""What a row of features stands for, and what it says."""


def _alone(describe: Callable[[Batch], Array]) -> Callable[[Batch], Rows]:
    """Features of which each candidate has one row."""

    def rows(batch: Batch) -> Rows:
        return Rows(describe(batch), np.arange(len(batch)), ())

    return rows


FEATURES: Mapping[Kind, Callable[[Batch], Rows]] = {
    "statements": features_of,
    "programs": summary_of,
    "knob": _alone(knob_features),
    "itervar": _alone(itervar_features),
    "curve": _alone(curve_features),
}

FEWEST_TASKS = 8
"""Tasks from which on some are held out to say when to stop."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Measured candidates of several tasks."""

    matrix: Array
    """[rows, columns]"""
    owners: Array
    """[rows]: the candidate of each row."""
    tasks: Array
    """[candidates]: the number of the task."""
    seconds: Array
    """[candidates]: infinity for failures."""
    base: Array
    """[candidates]: what the base model says."""
    keys: tuple[str, ...]
    """The key of every task."""

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def throughput(self) -> Array:
        """The shortest time of the task by the candidate's: 1 for the best, 0 for failures."""
        best = np.full(len(self.keys), np.inf)
        np.minimum.at(best, self.tasks, self.seconds)
        ok = np.isfinite(self.seconds)
        return np.where(ok, best[self.tasks] / np.where(ok, self.seconds, 1.0), 0.0)

    def take(self, chosen: Array) -> Samples:
        """Those candidates, by a mask."""
        number = np.cumsum(chosen) - 1
        rows = chosen[self.owners]
        return Samples(
            self.matrix[rows], number[self.owners[rows]], self.tasks[chosen],
            self.seconds[chosen], self.base[chosen], self.keys,
        )  # fmt: skip

    def total(self, values: Array) -> Array:
        """The sums of rows' values over the rows of each candidate."""
        result: Array = np.bincount(self.owners, values, len(self))
        return result

    def split(self) -> tuple[Samples, Samples | None]:
        """Tasks to learn from and tasks to judge by, by the tasks' digests; a fifth of them."""
        judged = np.array([int(key[-6:], 16) % 5 == 0 for key in self.keys], bool)
        if len(self.keys) < FEWEST_TASKS or not judged.any() or judged.all():
            return self, None
        return self.take(~judged[self.tasks]), self.take(judged[self.tasks])


def gather(trials: Sequence[Trials], base: CostModel, kind: Kind) -> Samples:
    """All trials in one table."""
    matrices, owners, tasks, scores, seconds = [], [], [], [], []
    keys: dict[str, int] = {}
    count = 0
    for one in trials:
        rows = FEATURES[kind](one.batch)
        matrices.append(rows.matrix)
        owners.append(rows.owners + count)
        number = keys.setdefault(one.batch.task.key, len(keys))
        tasks.append(np.full(len(one.batch), number))
        scores.append(base.scores(one.batch))
        seconds.append(np.asarray(one.seconds, np.float64))
        count += len(one.batch)
    widths = {matrix.shape[1] for matrix in matrices}
    check(len(widths) == 1, "WH2121", f"features '{kind}' of several sketches do not compare")
    return Samples(
        np.concatenate(matrices), np.concatenate(owners), np.concatenate(tasks),
        np.concatenate(seconds), np.concatenate(scores), tuple(keys),
    )  # fmt: skip
