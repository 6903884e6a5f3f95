"""Equations between extents that types demand, told from those that held by chance.

At sampled shapes `dim(x, 1) == dim(w, 1)` may hold throughout and yet be no matter of types: a
grouped convolution has a type without it.  Whether types demand an equation is asked of the
operators' own `infer`: extents on one side of it are changed, and others with them so that all
has types again (`repair`).  Where that succeeds the equation is not demanded, and the assignment
is one that the claim must survive.

An equation that withstands is taken for one that types demand: `infer` is code, so this is a
search and no proof, and whoever applies a rule still checks it (`conditions.assumed`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from whet.graph.attributes import Name
from whet.graph.terms import Apply, subterms
from whet.superopt.verify.claims import Assignment, Claim
from whet.superopt.verify.repair import (
    Change,
    Unit,
    equal_places,
    obstacle,
    read_places,
    repaired,
    with_places,
)

CHANGES: tuple[Change, ...] = (
    lambda d: 2 * d,
    lambda d: 3 * d,
    lambda d: d + 1,
    lambda d: 1,
)
"""Changes of the extents of one side of an equation, and of those that repair types."""
COMPOSITE = 6
"""The factor that makes extents divisible, so that a change meets no other obstacle."""
PARTS = 14
"""Ways in which the extents of one equation are divided."""
BASES = 3
"""Assignments that an equation is challenged at."""
SMALL = (2, 3, 4, 6)
"""Extents that those of a violation are reduced to."""


@functools.lru_cache(maxsize=256)
def violations(claim: Claim, at: tuple[Assignment, ...]) -> tuple[Assignment, ...]:
    """Assignments that fit the claim and violate equations between extents that hold at all of
    `at`; what holds at these too is demanded by types, as far as the search can tell."""
    found: list[Assignment] = []
    demanded: set[Unit] = set()
    bases = _bases(claim, at)
    while True:
        classes = equal_places((*at, *found))
        questioned = next((c for c in classes if len(c) > 1 and c not in demanded), None)
        if questioned is None:
            return tuple(found)
        challenge = _Challenge(claim, questioned, tuple(classes))
        # From every base: one shape may hide what another shows (a window that sees padding only).
        violated = [at for at in map(challenge.violated, bases) if at is not None]
        found += violated
        if not violated:
            demanded.add(questioned)


def _bases(claim: Claim, at: Sequence[Assignment]) -> list[Assignment]:
    """A few assignments to start from: with few extents of 1, with different attributes, and with
    every axis that an attribute names, since types demand nothing along the axis of a concat."""
    ordered = sorted(at, key=lambda a: sum(d == 1 for _, s in a.shapes for d in s))
    by_attributes = {a.attributes: a for a in reversed(ordered)}
    different = sorted(by_attributes.values(), key=ordered.index)
    axes = _axes(claim)
    by_axis = {_chosen(a, axes): a for a in reversed(different)}
    covered = {_chosen(a, axes) for a in different[:BASES]}
    return [*different[:BASES], *(a for along, a in by_axis.items() if along not in covered)]


def _axes(claim: Claim) -> frozenset[str]:
    """The attribute variables that name axes."""
    applied = (t for side in claim.sides for t in subterms(side) if isinstance(t, Apply))
    named = (e for t in applied for key, e in t.attributes if key == "axis")
    return frozenset(e.name for e in named if isinstance(e, Name))


def _chosen(at: Assignment, names: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    return tuple((n, v) for n, v in at.attributes if n in names)


@dataclass(frozen=True)
class _Challenge:
    """A search for an assignment at which the extents of one class are not all equal."""

    claim: Claim
    equal: Unit
    classes: tuple[Unit, ...]

    def violated(self, base: Assignment) -> Assignment | None:
        """A variation of the assignment in which they differ."""
        start = self._composite(base)
        for change, part in self._changes(start):
            found = repaired(self.claim, start, part, change, self.classes, self._differs)
            if found is not None:
                return self._reduced(found)
        return None

    def _changes(self, start: Assignment) -> Iterator[tuple[Change, Unit]]:
        """Changes of parts of the class: those above, and what makes an extent
        that of another tensor on the same axis, from which it was broadcast."""
        parts = self._parts()
        yield from itertools.product(CHANGES, parts)
        extents = read_places(start)
        here = extents[self.equal[0]]
        for part in parts:
            axes = {axis for _, axis in part}
            beside = (d for (_, axis), d in extents.items() if axis in axes)
            for value in dict.fromkeys(beside):
                if value not in (1, here):
                    yield functools.partial(_replaced, value), part

    def _parts(self) -> list[Unit]:
        sizes = range(1, len(self.equal))
        every = itertools.chain.from_iterable(itertools.combinations(self.equal, n) for n in sizes)
        return list(itertools.islice(every, PARTS))

    def _composite(self, base: Assignment) -> Assignment:
        """The assignment with as many extents as fit divisible by 2 and 3."""
        extents = read_places(base)

        def scaled(places: Iterable[tuple[str, int]]) -> Assignment:
            return with_places(base, {p: COMPOSITE * extents[p] for p in places})

        free = [c for c in self.classes if obstacle(self.claim, scaled(c)) is None]
        every = scaled(p for c in free for p in c)
        return every if obstacle(self.claim, every) is None else base

    def _differs(self, at: Assignment) -> bool:
        extents = read_places(at)
        return len({extents[p] for p in self.equal}) > 1

    def _reduced(self, at: Assignment) -> Assignment:
        """The violation with extents as small as is easy, which costs the gates less."""
        here = equal_places((at,))
        units = [tuple(read_places(at)), *here, *self.classes, *((p,) for c in here for p in c)]
        units += [(*a, *b) for a, b in itertools.combinations(here, 2)]
        smaller = True
        while smaller:
            smaller = False
            for reduced in (r for unit in dict.fromkeys(units) for r in _reductions(at, unit)):
                if self._differs(reduced) and obstacle(self.claim, reduced) is None:
                    at, smaller = reduced, True
                    break
        return at


def _replaced(value: int, extent: int) -> int:
    return value


def _reductions(at: Assignment, unit: Unit) -> Iterator[Assignment]:
    """The assignment with smaller extents at the places: one value, or divided by one."""
    extents = read_places(at)
    here = {p: extents[p] for p in unit}
    lowest = min(here.values(), default=0)
    yield from (with_places(at, dict.fromkeys(unit, v)) for v in SMALL if v < lowest)
    for factor in (3, 2):
        if here and all(d % factor == 0 and d > factor for d in here.values()):
            yield with_places(at, {p: d // factor for p, d in here.items()})
