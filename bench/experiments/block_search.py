"""Searches over the blocks of a network with other steps and other alphas than the product's.

The price of a network after n graphs per block is that of its plan, less what the best of the first
n graphs of every block gains, as often as the block occurs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from harness.pairs import price_of
from harness.tuning import native_engine
from whet.build.backend import backend_of
from whet.graph.graph import Graph
from whet.joint.blocks import Block, cut_blocks, form_of
from whet.joint.pricing import part_price, plan_whole
from whet.joint.search import ALPHA, Budget, Step, backtrack
from whet.superopt.apply.match import Matcher
from whet.superopt.apply.rewrite import CycleError, Part, applied
from whet.tasks.price import Price


@dataclass(frozen=True, eq=False)
class Blocks:
    """The kinds of blocks of a network, and how often each occurs."""

    seconds: float
    """The price of the whole network as it is written."""
    kinds: tuple[tuple[Block, int], ...]
    price: Price


@dataclass(frozen=True)
class Point:
    """The best price of a network after so many graphs per block."""

    states: int
    elapsed: float
    """Seconds of all searches until then."""
    price: float


@dataclass(frozen=True)
class Course:
    """The search on a network, graph by graph."""

    points: tuple[Point, ...]
    cut_off: int
    """Blocks whose time was up before they had their share of graphs."""

    @property
    def last(self) -> Point:
        return self.points[-1]


def blocks_of(graph: Graph, threads: int) -> Blocks:
    """The blocks that the search begins with.

    Raises: `SystemExit` if the graph has no price.
    """
    price = price_of(graph, threads)
    whole = plan_whole(graph, price, backend_of(native_engine().target).holds)
    if whole is None:
        raise SystemExit("the network has no price")
    blocks = cut_blocks(whole)
    keys = [form_of(block.part, block.places).key for block in blocks]
    times = Counter(keys)
    first = dict(reversed(list(zip(keys, blocks))))
    return Blocks(whole.seconds, tuple((first[k], n) for k, n in times.items()), price)


def search_blocks(
    blocks: Blocks,
    steps: Callable[[], Callable[[Part], Iterable[Step]]],
    budget: Budget,
    alpha: float = ALPHA,
) -> Course:
    """The course of a search on all blocks; `steps` are made anew for it."""
    moves = steps()
    done = [_course(block, blocks.price, moves, budget, alpha) for block, _ in blocks.kinds]
    courses = [course for course, _ in done]
    found = []
    for n in range(max(map(len, courses))):
        reached = [course[min(n, len(course) - 1)] for course in courses]
        gains = (
            times * (course[0][1] - best)
            for (_, times), course, (_, best) in zip(blocks.kinds, courses, reached)
        )
        elapsed = sum(seconds for seconds, _ in reached)
        found.append(Point(n + 1, elapsed, blocks.seconds - sum(gains)))
    return Course(tuple(found), sum(cut_off for _, cut_off in done))


def _course(
    block: Block,
    price: Price,
    steps: Callable[[Part], Iterable[Step]],
    budget: Budget,
    alpha: float,
) -> tuple[list[tuple[float, float]], bool]:
    """The seconds until every graph of a search was priced, and the best price until then; and
    whether its time was up first."""
    start = time.perf_counter()
    course: list[tuple[float, float]] = []

    def asked(part: Part) -> float:
        seconds = part_price(part, block.places, block.part, price)
        best = min(seconds, course[-1][1]) if course else seconds
        course.append((time.perf_counter() - start, best))
        return seconds

    found = backtrack(block.part, steps, asked, budget, alpha)
    return course, not found.complete and found.states < budget.states


def rule_steps(matcher: Matcher) -> Callable[[Part], Iterator[Step]]:
    """Steps by rules alone, without laws of axes."""

    def steps(part: Part) -> Iterator[Step]:
        for rewrite in matcher.rewrites(part):
            try:
                yield (rewrite,), applied(part, [rewrite])
            except CycleError:
                continue

    return steps
