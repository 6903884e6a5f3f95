"""The analytic model as a cost model: what every learned one starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.types import Array
from whet.tune.models.protocol import Batch, CostModel, Trials


@dataclass(frozen=True)
class Analytic:
    """Scores by the sketches' own estimates; there is nothing to learn."""

    def scores(self, batch: Batch) -> Array:
        result: Array = -np.log(np.maximum(batch.draft, 1e-12))
        return result

    def fit(self, trials: Sequence[Trials]) -> Analytic:
        return self

    def on(self, base: CostModel) -> Analytic:
        return self
