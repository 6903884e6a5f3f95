"""Gradient-boosted trees, as far as the cost models need them: LightGBM behind two functions.

LightGBM loads when a model is fitted or used, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from whet.core.types import Array

_BINS = {"max_bin": 63, "min_data_in_bin": 1, "feature_pre_filter": False}
"""Few values matter to few rows; columns that cannot be split are left to the trees."""
PATIENCE = 30
"""Rounds without progress on the tasks that are held out, before boosting stops."""


@dataclass(frozen=True)
class TreeSettings:
    """The settings by which trees are grown; what is not here is LightGBM's default."""

    rounds: int = 150
    leaves: int = 15
    rate: float = 0.1
    least_rows: int = 10
    columns: float = 0.3
    """Share of the columns that each tree may use."""
    rows: float = 0.8
    shrink: float = 5.0
    """Weight of the square of leaves' values."""
    threads: int = 1
    seed: int = 1

    def parameters(self) -> dict[str, Any]:
        return {
            "num_leaves": self.leaves, "learning_rate": self.rate,
            "min_data_in_leaf": self.least_rows, "feature_fraction": self.columns,
            "bagging_fraction": self.rows, "bagging_freq": 1 if self.rows < 1 else 0,
            "lambda_l2": self.shrink, "num_threads": self.threads, "seed": self.seed,
            "verbose": -1, "deterministic": True, "force_row_wise": True, **_BINS,
        }  # fmt: skip


MANY_TASKS = TreeSettings()
"""For trials of many tasks, as measured on tasks that were held out."""
ONE_TASK = TreeSettings(rounds=50, leaves=7, least_rows=5, rows=1.0)
"""For the few trials that a search has made of its own task."""


def varies(matrix: Array) -> bool:
    """Whether there is anything to tell rows apart by; trees cannot be grown otherwise."""
    return len(matrix) > 1 and bool((matrix != matrix[0]).any())


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trees, kept as LightGBM's own text."""

    text: str

    @cached_property
    def _booster(self) -> Any:
        import lightgbm

        return lightgbm.Booster(model_str=self.text)

    def predict(self, matrix: Array, threads: int = 1) -> Array:
        """[rows]"""
        if not len(matrix):
            return np.zeros(0)
        result: Array = self._booster.predict(matrix, num_threads=threads)
        return result


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to learn from, or to judge by."""

    matrix: Array
    start: Array | None = None
    """What is predicted before the first tree."""
    labels: Array | None = None
    groups: Sequence[int] | None = None
    """Sizes of the groups that rows are ranked within, in order."""


Gradient = Callable[[Array], tuple[Array, Array]]
"""From predictions to first and second derivatives, row by row."""


def grow(
    settings: TreeSettings,
    rows: Rows,
    objective: Gradient | Mapping[str, Any],
    held_out: Rows | None = None,
    loss: Callable[[Array], float] | None = None,
) -> tuple[Ensemble, int]:
    """The trees and how many there are.

    With rows that are held out and a loss on their predictions, boosting stops where that is
    least.  A mapping names an objective of LightGBM's own with its parameters.
    """
    import lightgbm

    data = _dataset(rows, None)
    parameters = settings.parameters()
    callbacks: list[Any] = []
    options: dict[str, Any] = {}
    if isinstance(objective, Mapping):
        parameters |= objective
    else:
        gradient = objective
        parameters |= {"objective": lambda predicted, _: gradient(predicted), "metric": "None"}
    if held_out is not None and loss is not None:
        judged = loss
        options["valid_sets"] = [_dataset(held_out, data)]
        options["feval"] = lambda predicted, _: ("loss", judged(predicted), False)
        parameters["metric"] = "None"
        callbacks.append(lightgbm.early_stopping(PATIENCE, verbose=False))
    booster = lightgbm.train(
        parameters, data, settings.rounds, callbacks=callbacks, **options
    )  # fmt: skip
    best = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
    return Ensemble(booster.model_to_string(num_iteration=best)), int(best)


def _dataset(rows: Rows, reference: Any) -> Any:
    import lightgbm

    labels = np.zeros(len(rows.matrix)) if rows.labels is None else rows.labels
    return lightgbm.Dataset(
        rows.matrix, label=labels, init_score=rows.start, group=rows.groups, reference=reference,
        params={"verbose": -1, **_BINS},
    )  # fmt: skip
