"""Steps of the search: rewrites by rules and along carried axes, alone or as far as they go."""

from __future__ import annotations

from collections.abc import Iterator

from whet.graph.graph import Result
from whet.joint.search import Step
from whet.joint.sums import sum_steps
from whet.superopt.apply.axis_rules import (
    merge_rewrites,
    node_types,
    part_rewrites,
    slice_rewrites,
    sums_up,
)
from whet.superopt.apply.match import Matcher
from whet.superopt.apply.rewrite import CycleError, Part, Rewrite, applied, disjoint

MOST_STEPS = 500
"""Rewrites in a row after which a chain of them ends."""


class Moves:
    """All steps from a graph to its neighbours."""

    def __init__(self, matcher: Matcher | None) -> None:
        self.matcher = matcher

    def __call__(self, part: Part) -> Iterator[Step]:
        hoisted = hoist_slices(part)
        if hoisted is not None:
            yield hoisted
        for rewrite in self._rewrites(part):
            yield from taken(part, rewrite)
        if self.matcher is not None:
            yield from sum_steps(part, self.matcher)

    def _rewrites(self, part: Part) -> Iterator[Rewrite]:
        yield from slice_rewrites(part)
        yield from merge_rewrites(part)
        yield from part_rewrites(part)
        if self.matcher is not None:
            yield from self.matcher.rewrites(part)


def promising(part: Part) -> Iterator[Step]:
    """The few steps that mostly pay: slices cut early, operators that reduce put together."""
    hoisted = hoist_slices(part)
    if hoisted is not None:
        yield hoisted
    for rewrite in merge_rewrites(part):
        (node, *_) = (v.node for v in rewrite.old if isinstance(v, Result))
        if sums_up(node.op, node_types(node)):
            yield from taken(part, rewrite)


def taken(part: Part, rewrite: Rewrite) -> Iterator[Step]:
    """The graph after the rewrite, and the one where what follows is put together as well."""
    try:
        made = applied(part, [rewrite])
    except CycleError:
        return
    if any(a.type != b.type for a, b in zip(part.outputs, made.outputs)):
        return
    plain = settled((rewrite,), made)
    yield plain
    lifted = lift_epilogues(plain[1]) if len(rewrite.old) > 1 else None
    if lifted is not None:
        yield (*plain[0], *lifted[0]), lifted[1]


def hoist_slices(part: Part) -> Step | None:
    """Slices as early as they can be cut, as long as nothing else needs what they cut from."""
    path: list[Rewrite] = []
    for _ in range(MOST_STEPS):
        rewrite = next(slice_rewrites(part, alone=True), None)
        if rewrite is None:
            break
        path.append(rewrite)
        part = applied(part, [rewrite])
    return (tuple(path), part) if path else None


def lift_epilogues(part: Part) -> Step | None:
    """Operators of all parts of a value as operators of the value: bias and activation join what
    was put together."""
    path: list[Rewrite] = []
    for _ in range(MOST_STEPS):
        rewrites = disjoint(merge_rewrites(part, heavy=False))
        try:
            part = applied(part, rewrites)
        except CycleError:
            # Each makes none by itself, so one after the other can be taken.
            rewrites = rewrites[:1]
            part = applied(part, rewrites)
        path += rewrites
        if not rewrites:
            break
    return (tuple(path), part) if path else None


def settled(path: tuple[Rewrite, ...], part: Part) -> Step:
    """The graph after the rewrites, with slices where they cost least."""
    more = hoist_slices(part)
    return (path, part) if more is None else ((*path, *more[0]), more[1])
