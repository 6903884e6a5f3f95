"""Shapes and attributes on which a claim is tested, chosen to break it.

An assignment gives a shape to every tensor variable and a value to every attribute variable,
such that both sides have types and the guards hold.  It is found by search: an operator's own
`infer` is the only judge of what fits, and its own `sample` the source of attribute values, so
an operator from outside the package is treated like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from whet.core.types import Array, Shape, TensorType
from whet.graph.attributes import Expression, evaluate
from whet.ops.base import Op
from whet.superopt.verify.attempt import STEPS, STEPS_LATER, Attempt, Chance, plan_of
from whet.superopt.verify.claims import Assignment, Claim
from whet.superopt.verify.evaluate import effort
from whet.superopt.verify.steps import Typed, typed
from whet.superopt.verify.vary import Equal

POOLS: tuple[tuple[int, ...], ...] = (
    (2, 3, 4, 5, 1),  # mixed
    (2, 4, 6),  # even: where strides of 2 and groups bite
    (1, 2),  # extents of 1
    (3, 5, 7, 2),  # odd and mutually prime
    (1, 4, 6, 3),  # depthwise and groups of several sizes
    (2, 2, 3),  # many equal extents
)
"""Extents to choose from, one pool per attempt in turn."""
FRUITLESS = 30
"""Attempts in a row that find nothing new, after which the search ends."""
LARGER = tuple(range(1, 18))
"""Extents to choose from when those of the pools are exhausted."""
VARIED = 2
"""Variations of assignments found before that are tried after each attempt: so many with other
extents, and so many with other attributes."""
MOST_TRIED = 30_000
"""Shapes for single tensors that one search looks at, about a second, for claims that few fit."""
MOST_POINTS = 1 << 20
"""Points of an evaluation on residues; volumes under transposed convolutions would have more."""
SURPLUS = 3
"""How many times as many assignments are found as are taken."""


def holds(guard: Expression, attributes: Mapping[str, Any], shapes: Mapping[str, Shape]) -> bool:
    """Whether the guard is true; one that has no value is not."""
    try:
        return bool(evaluate(guard, attributes, shapes))
    except (ArithmeticError, LookupError, TypeError):
        return False


def fits(claim: Claim, at: Assignment) -> bool:
    """Whether both sides have types there and the guards hold."""
    shapes, attributes = dict(at.shapes), dict(at.attributes)
    if not all(holds(g, attributes, shapes) for g in claim.guards):
        return False
    return typed(claim.sides, attributes, shapes) is not None


# -------------------------------------------------------------------------------------- search
class Stream:
    """The assignments of a claim, found when they are asked for and then kept.

    Those whose evaluation would visit more than `most` points are passed over.
    """

    def __init__(
        self,
        claim: Claim,
        seed: int,
        pools: Sequence[tuple[int, ...]] = POOLS,
        largest: int | None = None,
        most: int = MOST_POINTS,
    ) -> None:
        self.claim = claim
        self.found: list[Assignment] = []
        self.shown: list[frozenset[str]] = []
        every = search(claim, seed, pools, largest)
        self._more = (at for at in every if affordable(claim, at, most))

    def spread(self, count: int) -> tuple[Assignment, ...]:
        """Up to `count` different assignments that together show as many features as possible.

        About three times as many are found first; then one after the other is taken that adds
        a feature (`features`) which the fewest of those taken so far have.
        """
        wanted = SURPLUS * count
        self.found += itertools.islice(self._more, max(0, wanted - len(self.found)))
        self.shown += [features(self.claim, at) for at in self.found[len(self.shown) :]]
        if not self.found:
            return ()
        shown = _table(self.shown[:wanted])
        left = np.ones(len(shown), np.bool_)
        times = np.zeros(shown.shape[1])
        taken = []
        for _ in range(min(count, len(shown))):
            gain = shown @ 4.0**-times
            best = int(np.argmax(np.where(left, gain, -1.0)))
            left[best] = False
            times += shown[best]
            taken.append(self.found[best])
        return tuple(taken)


def _table(shown: Sequence[frozenset[str]]) -> Array:
    """Which assignment (row) shows which feature (column)."""
    columns = {f: n for n, f in enumerate(sorted(frozenset().union(*shown)))}
    table = np.zeros((len(shown), len(columns)))
    for row, some in zip(table, shown):
        row[[columns[f] for f in some]] = 1
    return table


def assignments(
    claim: Claim, count: int, seed: int, largest: int | None = None
) -> tuple[Assignment, ...]:
    """Up to `count` assignments that are as different as possible (see `Stream.spread`).

    Extents of inputs are at most `largest`.
    """
    return Stream(claim, seed, largest=largest).spread(count)


def search(
    claim: Claim,
    seed: int,
    pools: Sequence[tuple[int, ...]] = POOLS,
    largest: int | None = None,
) -> Iterator[Assignment]:
    """Different assignments as they are found, until new ones become rare."""
    rng = Chance(seed)
    plan = plan_of(claim)
    found: dict[Assignment, None] = {}
    equal = Equal(largest)
    fruitless = tried = 0
    for pool in itertools.cycle(pools):
        steps = STEPS_LATER if found else STEPS
        attempt = Attempt(plan, pool, rng, largest, equal.places, steps)
        at = attempt.run()
        tried += attempt.tried
        suggested = [] if at is None else [at]
        known = list(found)
        # To change what fits is cheaper than to begin anew, and where few shapes fit the surest.
        suggested += (equal.vary(rng.random.choice(known), pool, rng) for _ in known[:VARIED])
        if plan.attributes:
            varied = (rng.random.choice(known) for _ in known[:VARIED])
            suggested += (Attempt(plan, pool, rng).other_attributes(a) for a in varied)
        if known and largest is None:
            scaled = equal.scaled(claim, rng.random.choice(known), rng)
            suggested += [] if scaled is None else [scaled]
        new = [a for a in suggested if a not in found and (a is at or fits(claim, a))]
        for a in new:
            yield from _with_challenges(claim, a, found, equal)
        fruitless = 0 if new else fruitless + 1
        if fruitless >= FRUITLESS or tried > MOST_TRIED:
            break
    if largest is not None:
        return
    fruitless = 0
    while found and fruitless < FRUITLESS:
        at = equal.vary(rng.random.choice(list(found)), LARGER, rng)
        fruitless += 1
        if at not in found and fits(claim, at):
            fruitless = 0
            yield from _with_challenges(claim, at, found, equal)


def _with_challenges(
    claim: Claim, at: Assignment, found: dict[Assignment, None], equal: Equal
) -> Iterator[Assignment]:
    """The assignment, and variations of it that fit and break what seemed to be a law."""
    if at in found:
        return
    found[at] = None
    yield at
    equal.learn(at)
    for changed in equal.challenges(at):
        if changed not in found and fits(claim, changed):
            found[changed] = None
            yield changed
            equal.learn(changed)


def affordable(claim: Claim, at: Assignment, most: int = MOST_POINTS) -> bool:
    """Whether the claim can be evaluated there at up to so many points."""
    return effort(_typed(claim, at)) <= most


def _typed(claim: Claim, at: Assignment) -> Typed:
    types = typed(claim.sides, dict(at.attributes), dict(at.shapes))
    assert types is not None, at
    return types


def features(claim: Claim, at: Assignment) -> frozenset[str]:
    """Features that make the assignment hard: groups, depthwise, stride 2 on even extents, extents
    of 1, unequal parts, tensors of equal shape, extents that differ, values of attributes."""
    types = _typed(claim, at)
    found: set[str] = {f"{n}={v}" for n, v in at.attributes}
    for name, shape in at.shapes:
        found.add(f"{name} {'has' if 1 in shape else 'has no'} 1")
        found |= {f"{name} odd {k}" for k, d in enumerate(shape) if d % 2 and d > 1}
    for (a, s), (b, t) in itertools.combinations(at.shapes, 2):
        found.add(f"{a},{b} {'same' if s == t else 'differ'}")
        found |= {
            f"{a}.{k} not {b}.{j}" for k, d in enumerate(s) for j, e in enumerate(t) if d != e
        }
        if len(s) == len(t):
            found |= {f"{a} above {b} in {k}" for k, (d, e) in enumerate(zip(s, t)) if d > e}
            found |= {f"{a} below {b} in {k}" for k, (d, e) in enumerate(zip(s, t)) if d < e}
    for n in types.steps.applied:
        op = types.ops[n]
        inputs = [t.shape for i in types.steps.steps[n].inputs for t in types.types[i]
                  if isinstance(t, TensorType)]  # fmt: skip
        if op is not None and inputs:
            found |= _hard_attributes(op, inputs)
    return frozenset(found)


def _hard_attributes(op: Op, inputs: Sequence[Shape]) -> set[str]:
    found: set[str] = set()
    groups = getattr(op, "groups", 1)
    if groups > 1:
        found.add(f"{op.name} in groups")
        if inputs and len(inputs[0]) > 1 and groups == inputs[0][1]:
            found.add(f"{op.name} depthwise")
    strides = getattr(op, "strides", ())
    if inputs and any(s > 1 for s in strides):
        even = [d % 2 == 0 for d in inputs[0][2:]]
        found.add(f"{op.name} strided")
        found |= {f"{op.name} strided, even {n}" for n, (s, e) in enumerate(zip(strides, even))
                  if s > 1 and e}  # fmt: skip
    if any(getattr(op, "pads", ())):
        found.add(f"{op.name} padded")
    return found
