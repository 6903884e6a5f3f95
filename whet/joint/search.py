"""Cost-based backtracking over the graphs that rewrites lead to (TASO, SOSP'19, algorithm 2).

A queue holds graphs by price.  The cheapest is taken out, every rewrite of it is priced, and those
that are not dearer than `alpha` times the best so far go into the queue: with alpha = 1 the search
is greedy, above 1 it also takes steps that pay only later.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

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


def backtrack(
    start: Part,
    steps: Callable[[Part], Iterable[Step]],
    price: Callable[[Part], float],
    budget: Budget,
    alpha: float = ALPHA,
) -> Found:
    """The cheapest graph that the steps lead to within the budget."""
    until = time.perf_counter() + budget.seconds
    first = best = State(start, price(start))
    seen = {start.outputs}
    order = itertools.count()
    queue = [(first.seconds, next(order), first)]
    count = 1
    while queue:
        seconds, _, state = heapq.heappop(queue)
        if seconds > alpha * best.seconds:
            break
        for rewrites, part in steps(state.part):
            if part.outputs in seen:
                continue
            if count >= budget.states or time.perf_counter() > until:
                return Found(first, best, count, False)
            seen.add(part.outputs)
            count += 1
            found = State(part, price(part), (*state.path, *rewrites))
            if found.seconds < best.seconds:
                best = found
            if found.seconds <= alpha * best.seconds:
                heapq.heappush(queue, (found.seconds, next(order), found))
    return Found(first, best, count, True)
