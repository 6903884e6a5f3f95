"""Variations of assignments that are known to fit a claim."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from whet.superopt.verify.attempt import Chance, Place
from whet.superopt.verify.claims import Assignment, Claim
from whet.superopt.verify.repair import read_places, repaired, with_places

ENOUGH_TO_LEARN = 3
"""Assignments after which extents that were always equal are challenged."""
CHALLENGES = 2
"""Assignments at which an equation between extents must withstand all changes."""
PARTS = 8
"""Choices of places in one such equation that are changed together."""
FACTORS = (2, 3)
"""Some extents are multiplied by one of these, all at once: then there are groups."""
REPAIRED = 24
"""Assignments that are looked at to make such a change fit."""
TRANSFERS = 2
"""Assignments at which extents on one axis of two tensors are changed so that their sum stays."""


class Equal:
    """Which extents are equal in all assignments, by chance or because types demand it.

    What was always equal is challenged: extents of some of the places are changed.  If both
    sides still have types, that is an assignment that a claim should be tested at; if not, new
    shapes are drawn with these extents equal.

    Where types demand only that sums agree, as in matmul(concat(x, y), concat(w, z)), no change
    of one extent fits, so extents are also moved from one tensor to another.
    """

    def __init__(self, largest: int | None) -> None:
        self.places: dict[Place, tuple[Place, ...]] = {}
        """The places that are equal to a place, once they have withstood all challenges."""
        self.largest = largest
        self._values: dict[Place, tuple[int, ...]] = {}
        self._challenged: dict[tuple[Place, ...], int] = {}
        self._moved: dict[tuple[Place, Place], int] = {}
        self._count = 0

    def learn(self, at: Assignment) -> None:
        for place, extent in read_places(at).items():
            self._values[place] = (*self._values.get(place, ()), extent)
        self._count += 1
        self.places = {
            place: group
            for group in self._groups()
            if self._challenged.get(group, 0) >= CHALLENGES
            for place in group
        }

    def _groups(self) -> list[tuple[Place, ...]]:
        if self._count < ENOUGH_TO_LEARN:
            return []
        by_values: dict[tuple[int, ...], list[Place]] = {}
        for place, values in self._values.items():
            by_values.setdefault(values, []).append(place)
        return [tuple(places) for places in by_values.values() if len(places) > 1]

    def challenges(self, at: Assignment) -> Iterator[Assignment]:
        """Variations of the assignment in which extents that were always equal differ."""
        for group in self._groups():
            times = self._challenged.get(group, 0)
            if times >= CHALLENGES:
                continue
            self._challenged[group] = times + 1
            parts = itertools.chain.from_iterable(
                itertools.combinations(group, n) for n in range(1, len(group))
            )
            for part in itertools.islice(parts, PARTS):
                yield from self._changed(at, part)
        yield from self._transfers(at)

    def _transfers(self, at: Assignment) -> Iterator[Assignment]:
        """Variations in which an axis of one tensor is longer and that of another shorter."""
        for (a, first), (b, second) in itertools.permutations(at.shapes, 2):
            for axis, (d, e) in enumerate(zip(first, second)):
                pair = ((a, axis), (b, axis))
                times = self._moved.get(pair, 0)
                if e > 1 and times < TRANSFERS and (self.largest is None or d < self.largest):
                    self._moved[pair] = times + 1
                    yield with_places(at, {pair[0]: d + 1, pair[1]: e - 1})

    def vary(self, at: Assignment, pool: Sequence[int], rng: Chance) -> Assignment:
        """The assignment with another extent at one place and at those always equal to it."""
        places = list(read_places(at))
        if not places:
            return at
        values = self._values[rng.random.choice(places)]
        extent = rng.random.choice(pool)
        if self.largest is not None:
            extent = min(extent, self.largest)
        return with_places(at, {p: extent for p in places if self._values[p] == values})

    def scaled(self, claim: Claim, at: Assignment, rng: Chance) -> Assignment | None:
        """The assignment with one extent multiplied, and others with it so that all has types."""
        by_values: dict[tuple[int, ...], list[Place]] = {}
        places = [(n, axis) for n, shape in at.shapes for axis in range(len(shape))]
        for place in places:
            by_values.setdefault(self._values[place], []).append(place)
        if not places:
            return None
        classes = [tuple(c) for c in by_values.values()]
        rng.random.shuffle(classes)
        factor, part = rng.random.choice(FACTORS), (rng.random.choice(places),)
        return repaired(claim, at, part, lambda d: factor * d, classes, most=REPAIRED)

    def _changed(self, at: Assignment, part: Sequence[Place]) -> Iterator[Assignment]:
        extent = read_places(at)[part[0]]
        for value in (
            (1, 2, 3) if self.largest is not None else (1, extent + 1, 2 * extent, 3 * extent)
        ):
            if value != extent:
                yield with_places(at, dict.fromkeys(part, value))
