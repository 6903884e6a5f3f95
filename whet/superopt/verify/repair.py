"""Assignments that are changed in one place and repaired in others until all has types again.

    add(conv(x, w, groups=dim(x, 1) // dim(w, 1)), conv(z, v, groups=dim(z, 1) // dim(v, 1))) =
    conv(concat(x, z, axis=1), concat(w, v, axis=1), groups=dim(x, 1) // dim(w, 1))

    dim(x, 1) times 2       the last convolution has no type
    dim(z, 1) times 2       all have types again, now with two groups

The operators' own `infer` says what does not fit; whatever that mentions is changed alike.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from whet.graph.attributes import Evaluator, Measure, Name, compiled, walk
from whet.graph.terms import Apply, attribute_names, tensor_names
from whet.superopt.verify.attempt import Place
from whet.superopt.verify.claims import Assignment, Claim
from whet.superopt.verify.steps import Types, steps_of

Change = Callable[[int], int]
"""A change of an extent."""
Unit = tuple[Place, ...]
"""Places that are changed together."""

TRIED = 80
"""Assignments that are tried for one change."""


def read_places(at: Assignment) -> dict[Place, int]:
    """The entries at the places of an assignment."""
    found = {(n, axis): d for n, shape in at.shapes for axis, d in enumerate(shape)}
    return found | {(n, 0): v for n, v in at.attributes if type(v) is int}


def with_places(at: Assignment, changed: Mapping[Place, int]) -> Assignment:
    """The assignment with other extents at some places."""
    shapes = (
        (n, tuple(changed.get((n, axis), d) for axis, d in enumerate(shape)))
        for n, shape in at.shapes
    )
    attributes = ((n, changed.get((n, 0), v)) for n, v in at.attributes)
    return Assignment(tuple(shapes), tuple(attributes))


def equal_places(at: Sequence[Assignment]) -> list[Unit]:
    """The axes of tensors, those whose extents agree at all assignments together."""
    by_values: dict[tuple[int, ...], list[Place]] = {}
    for n, (name, shape) in enumerate(at[0].shapes):
        for axis in range(len(shape)):
            values = tuple(a.shapes[n][1][axis] for a in at)
            by_values.setdefault(values, []).append((name, axis))
    return list(map(tuple, by_values.values()))


def repaired(
    claim: Claim,
    start: Assignment,
    part: Unit,
    change: Change,
    classes: Sequence[Unit],
    wanted: Callable[[Assignment], bool] = lambda at: True,
    most: int = TRIED,
) -> Assignment | None:
    """The assignment with the part changed, and others with it so that the claim fits.

    `classes` are places that were equal so far; `wanted` may refuse what fits, and `most` limits
    the assignments that are looked at.
    """
    extents = read_places(start)
    # What lies on the same axis is the likeliest repair.
    axes = {axis for _, axis in part}
    units = sorted(_units(start, classes), key=lambda unit: all(k not in axes for _, k in unit))
    # Breadth first: few repairs before many.
    queue = deque([frozenset(part)])
    tried = {frozenset(part): -1}
    for _ in range(most):
        if not queue:
            break
        changed = queue.popleft()
        at = with_places(start, {p: change(extents[p]) for p in changed})
        met = obstacle(claim, at)
        if met is None and wanted(at):
            return at
        if met is None or met.number == tried[changed]:
            continue  # a repair that mends nothing leads nowhere
        for unit in units:
            if any(n in met.names for n, _ in unit):
                more = changed.union(unit)
                if more not in tried:
                    tried[more] = met.number
                    queue.append(more)
    return None


def _units(at: Assignment, classes: Sequence[Unit]) -> Iterator[Unit]:
    """Places that are changed together: every attribute that is a number; one of the equal ones,
    all of them, all but one."""
    yield from (((n, 0),) for n, v in at.attributes if type(v) is int)
    for places in classes:
        yield from itertools.combinations(places, 1)
    yield from (places for places in classes if len(places) > 1)
    for places in classes:
        if len(places) > 2:
            yield from itertools.combinations(places, len(places) - 1)


# ------------------------------------------------------------------------------------ obstacles
@dataclass(frozen=True, slots=True)
class Obstacle:
    """The first guard or term that does not fit: its number, and its variables."""

    number: int
    names: frozenset[str]


def obstacle(claim: Claim, at: Assignment) -> Obstacle | None:
    """The first thing that does not fit there; None if both sides have types and guards hold."""
    shapes, attributes = dict(at.shapes), dict(at.attributes)
    names = _names(claim)
    for n, (guard, named) in enumerate(names.guards):
        try:
            if not guard(attributes, shapes):
                return Obstacle(n, named)
        except (ArithmeticError, LookupError, TypeError):
            return Obstacle(n, named)
    steps = steps_of(claim.sides)
    known: list[Types | None] = [None] * len(steps.steps)
    for n, (named, applied) in enumerate(names.steps):
        op = steps.op(n, attributes, shapes) if applied else None
        known[n] = steps.known(n, op, known, shapes)
        if known[n] is None:
            return Obstacle(len(names.guards) + n, named)
    return None


@dataclass(frozen=True)
class _Names:
    """The variables of every guard, and of every step with whether it is an operator."""

    guards: tuple[tuple[Evaluator, frozenset[str]], ...]
    steps: tuple[tuple[frozenset[str], bool], ...]


@functools.lru_cache(maxsize=256)
def _names(claim: Claim) -> _Names:
    guards = []
    for guard in claim.guards:
        named = {e.tensor for e in walk(guard) if isinstance(e, Measure)}
        named |= {e.name for e in walk(guard) if isinstance(e, Name)}
        guards.append((compiled(guard), frozenset(named)))
    terms = (step.term for step in steps_of(claim.sides).steps)
    steps = ((frozenset((*tensor_names(t), *attribute_names(t))), isinstance(t, Apply))
             for t in terms)  # fmt: skip
    return _Names(tuple(guards), tuple(steps))
