"""Search policies, behind one protocol: which candidates to try next, given what is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from whet.tune.space import Row, Space


class Policy(Protocol):
    """Proposes candidates of one task."""

    def propose(
        self, space: Space, known: Mapping[Row, float], count: int, rng: np.random.Generator
    ) -> list[Row]:
        """Up to `count` rows that are not known yet; none when the search is done.

        `known` gives the seconds of every row that was tried, infinity where it failed.
        """


class Draft:
    """The analytic model's favourites of every sketch, spread out, with some chance mixed in.

    The model is right about orders of magnitude and wrong about details, so neighbours of a
    favourite are worth little: of rows with estimates within a few percent of each other only
    a random one is taken.
    """

    def __init__(self, chance: float = 0.1, ratio: float = 1.02) -> None:
        self.chance, self.ratio = chance, ratio

    def propose(
        self, space: Space, known: Mapping[Row, float], count: int, rng: np.random.Generator
    ) -> list[Row]:
        fresh = [
            (number, row)
            for number, table in enumerate(space.tables)
            for row in self._spread(table.costs, rng)
            if (number, row) not in known
        ]
        fresh.sort(key=space.cost)
        lucky = int(rng.binomial(count, self.chance))
        chosen = fresh[: count - lucky]
        return chosen + RandomSearch().propose(space, {**known, **dict.fromkeys(chosen, 0.0)},
                                               count - len(chosen), rng)  # fmt: skip

    def _spread(self, costs: np.ndarray, rng: np.random.Generator) -> list[int]:
        """One row of every class of nearly equal estimates, the cheapest class first."""
        classes = np.floor(np.log(np.maximum(costs, 1e-9)) / np.log(self.ratio)).astype(np.int64)
        shuffled = rng.permutation(len(costs))
        _, first = np.unique(classes[shuffled], return_index=True)
        return [int(shuffled[n]) for n in first]


class RandomSearch:
    """Candidates by chance alone: what every other policy must beat."""

    def propose(
        self, space: Space, known: Mapping[Row, float], count: int, rng: np.random.Generator
    ) -> list[Row]:
        if space.size == 0:
            return []
        sizes = np.array([len(t.costs) for t in space.tables])
        found: dict[Row, None] = {}
        for _ in range(4 * count):
            if len(found) == count:
                break
            number = int(rng.choice(len(sizes), p=sizes / sizes.sum()))
            row = (number, int(rng.integers(sizes[number])))
            if row not in known:
                found[row] = None
        return list(found)


class Droplet:
    """Coordinate descent from the best rows so far ("exploit as a raindrop").

    All neighbours of the best row are tried; when none is better the search goes on from the
    next best, and ends when the neighbourhoods of the best few are known.
    """

    def __init__(self, starts: int = 3) -> None:
        self.starts = starts

    def propose(
        self, space: Space, known: Mapping[Row, float], count: int, rng: np.random.Generator
    ) -> list[Row]:
        ranked = sorted((row for row in known if np.isfinite(known[row])), key=lambda r: known[r])
        for start in ranked[: self.starts]:
            fresh = [row for row in dict.fromkeys(space.neighbours(start)) if row not in known]
            if fresh:
                return sorted(fresh, key=space.cost)[:count]
        return []


class DraftThenDroplet:
    """The default: the model's favourites first, then descent from the best of them."""

    def __init__(self, drafted: int = 24) -> None:
        self.drafted, self.draft, self.droplet = drafted, Draft(), Droplet()

    def propose(
        self, space: Space, known: Mapping[Row, float], count: int, rng: np.random.Generator
    ) -> list[Row]:
        if len(known) < self.drafted:
            return self.draft.propose(space, known, min(count, self.drafted - len(known)), rng)
        found = self.droplet.propose(space, known, count, rng)
        return found or self.draft.propose(space, known, count, rng)
