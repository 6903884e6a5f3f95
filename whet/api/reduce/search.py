"""Delta debugging: the fewest parts that still show a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from whet.api.reduce.cutting import Case, Cutter
from whet.api.reduce.extents import smaller_cases

T = TypeVar("T")
Shows = Callable[[Case], bool]
"""Whether a case shows the problem."""


def fewest(items: Sequence[T], shows: Callable[[Sequence[T]], bool]) -> list[T]:
    """A list of which no item can be left out, from one that shows the problem.

    `ddmin` of Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002),
    section 3.2: parts of the list, then all but a part, then smaller parts.
    """
    left, parts = list(items), 2
    tried: set[tuple[T, ...]] = set()

    def is_enough(few: list[T]) -> bool:
        key = tuple(few)
        if key in tried:
            return False
        tried.add(key)
        return shows(few)

    while len(left) > 1:
        ends = [len(left) * n // parts for n in range(parts + 1)]
        chunks = [left[a:b] for a, b in pairwise(ends)]
        others = [left[:a] + left[b:] for a, b in pairwise(ends)] if parts > 2 else []
        if (chunk := next(filter(is_enough, chunks), None)) is not None:
            left, parts = chunk, 2
        elif (other := next(filter(is_enough, others), None)) is not None:
            left, parts = other, max(parts - 1, 2)
        elif parts < len(left):
            parts = min(len(left), 2 * parts)
        else:
            break
    return left


def smallest_case(
    cutter: Cutter, shows: Shows, found: Callable[[Case], None], *, extents: bool = True
) -> Case:
    """The case with the fewest nodes and outputs that shows what the whole graph shows, and then,
    with `extents`, the fewest elements.

    `found` is told every case that is smaller than those before, so that a search that is
    interrupted has found something.
    """
    best = Case(cutter.graph, {v.name: cutter.known[v] for v in cutter.graph.inputs})

    def is_smaller(case: Case) -> bool:
        nonlocal best
        if not case.graph.nodes or not shows(case):
            return False
        best = case
        found(case)
        return True

    nodes = fewest(cutter.graph.nodes, lambda few: is_smaller(cutter.case(few)))
    outputs = cutter.outputs_of(nodes)
    fewest(outputs, lambda few: is_smaller(cutter.case(nodes, few)))
    while extents and any(map(is_smaller, smaller_cases(best))):
        pass
    return best
