"""Cost-based backtracking over the graphs that rewrites lead to (TASO, SOSP'19, algorithm 2).

A queue holds graphs by price.  The cheapest is taken out, every rewrite of it is priced, and those
that are not dearer than `alpha` times the best so far go into the queue: with alpha = 1 the search
is greedy, above 1 it also takes steps that pay only later.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from whet.joint.clocks import Clock
from whet.superopt.apply.rewrite import Part, Rewrite

Engine = Literal["backtracking", "saturation"]
"""The ways to search a block: graph by graph, or all graphs at once (`joint.saturation`)."""
ENGINES: tuple[Engine, ...] = get_args(Engine)
"""All of them, the one for short searches first."""
ALPHA = 1.05
"""The paper's value (section 5.1)."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a search."""

    states: int
    seconds: float


@dataclass(frozen=True, eq=False)
class State:
    """A graph on the way, with its price and the rewrites that led to it."""

    part: Part
    seconds: float
    path: tuple[Rewrite, ...] = ()


@dataclass(frozen=True, eq=False)
class Found:
    """The best graph that a search has seen, and how many it has priced."""

    first: State
    best: State
    states: int
    complete: bool
    """Whether everything within reach was looked at."""
    engine: Engine = "backtracking"


Step = tuple[tuple[Rewrite, ...], Part]
"""Rewrites, and the graph after them."""


def descend(
    start: Part,
    steps: Callable[[Part], Iterable[Step]],
    price: Callable[[Part], float],
    most: int,
    going: Callable[[], bool],
) -> list[State]:
    """The states that are priced, the start first, where always the cheapest step is taken until
    none is cheaper, `most` are priced or it is not `going` on."""
    best = State(start, price(start))
    known, seen = [best], {start.outputs}
    while True:
        before = best
        for rewrites, part in steps(before.part):
            if part.outputs in seen:
                continue
            if len(known) >= most or not going():
                return known
            seen.add(part.outputs)
            found = State(part, price(part), (*before.path, *rewrites))
            known.append(found)
            best = min(best, found, key=lambda s: s.seconds)
        if best is before:
            return known


def backtrack(
    start: Part,
    steps: Callable[[Part], Iterable[Step]],
    price: Callable[[Part], float],
    budget: Budget,
    alpha: float = ALPHA,
    known: Sequence[State] = (),
    clock: Clock | None = None,
) -> Found:
    """The cheapest graph that the steps lead to within the budget.

    States that are `known`, the start first, are not priced again, and the start is looked at
    however much cheaper others are.
    """
    clock = clock or Clock()
    until = clock.now() + budget.seconds
    known = known or [State(start, price(start))]
    first, best = known[0], min(known, key=lambda s: s.seconds)
    seen = {s.part.outputs for s in known}
    order = itertools.count()
    queue = [
        (s.seconds, next(order), s)
        for s in known
        if s is first or s.seconds <= alpha * best.seconds
    ]
    heapq.heapify(queue)
    count = len(known)
    while queue:
        seconds, _, state = heapq.heappop(queue)
        if seconds > alpha * best.seconds and state is not first:
            continue
        for rewrites, part in steps(state.part):
            if part.outputs in seen:
                continue
            if count >= budget.states or clock.now() > until:
                return Found(first, best, count, False)
            seen.add(part.outputs)
            count += 1
            found = State(part, price(part), (*state.path, *rewrites))
            if found.seconds < best.seconds:
                best = found
            if found.seconds <= alpha * best.seconds:
                heapq.heappush(queue, (found.seconds, next(order), found))
    return Found(first, best, count, True)
