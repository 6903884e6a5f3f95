"""The protocol of search policies: which candidates to try next, given what is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from whet.tune.space import Row, Space
from whet.tune.timing import Timing

Known = Mapping[Row, Timing]
"""Every row that was tried, in the order of the trials; infinity where one failed."""


class Policy(Protocol):
    """Proposes candidates of a task.

    Policies keep nothing between calls: all that they go by is `known`, so a search that was
    interrupted goes on as if it had not been, and one policy serves all tasks of a model.
    """

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        """Up to `count` rows that are not known yet; none when the search is done."""
