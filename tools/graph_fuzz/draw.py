"""Random decisions: the same for the same seed on every machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Draw:
    """A source of decisions.  Only integers and uniform numbers are drawn: other distributions
    use the machine's mathematical library, which differs between machines."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.integers(len(options)))]

    def weighted(self, options: Mapping[T, float]) -> T:
        total = sum(options.values())
        point = float(self.rng.random()) * total
        for option, weight in options.items():
            point -= weight
            if point < 0:
                return option
        return list(options)[-1]

    def some(self, options: Sequence[T], probability: float) -> list[T]:
        """Each of the options with this probability, in order."""
        return [o for o in options if self.chance(probability)]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        return [options[int(n)] for n in self.rng.permutation(len(options))]
