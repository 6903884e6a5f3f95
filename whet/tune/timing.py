"""A trial as a search knows it: its seconds, and how sure they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Self

import numpy as np

DOUBT = 0.05
"""How often noise alone may pass for a difference."""
FEWEST = 3
"""With fewer samples, order says nothing: those trials were cut short because they were slow."""
CUT_SHORT = 1.5
"""How much faster something must be than a trial that was cut short."""


class Timing(float):
    """The median of a trial's samples, as a number; infinity when there are none: it failed."""

    samples: tuple[float, ...]

    def __new__(cls, samples: Iterable[float] = ()) -> Self:
        taken = tuple(map(float, samples))
        made = super().__new__(cls, statistics.median(taken) if taken else math.inf)
        made.samples = taken
        return made

    @property
    def ok(self) -> bool:
        return bool(self.samples)


FAILED = Timing()


def is_faster(a: Timing, b: Timing) -> bool:
    """Whether the first is faster than the second by more than noise explains.

    Mann and Whitney's test on all samples of both: it looks at their order only, because times
    are never distributed normally.  (Droplet asks Student's t-test.)
    """
    if not a < b or not b.ok:
        return a < b
    if min(len(a.samples), len(b.samples)) < FEWEST:
        return CUT_SHORT * a < b
    return _doubt(np.array(a.samples), np.array(b.samples)) < DOUBT


def _doubt(a: np.ndarray, b: np.ndarray) -> float:
    """The chance that samples of equal kernels favour the first as much as these do."""
    m, n = len(a), len(b)
    wins = float(np.sum(a[:, None] < b) + 0.5 * np.sum(a[:, None] == b))
    _, ties = np.unique(np.concatenate([a, b]), return_counts=True)
    total = m + n
    variance = m * n / 12 * (total + 1 - float(np.sum(ties**3 - ties)) / (total * (total - 1)))
    if variance <= 0:
        return 1.0  # all samples are equal
    return 0.5 * math.erfc((wins - m * n / 2 - 0.5) / math.sqrt(2 * variance))
