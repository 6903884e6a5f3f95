"""Extraction: one e-node for every class that is needed, so that the sum of their costs is least.

    {q: matmul(x, a) | split(m)[0],  k: matmul(x, b) | split(m)[1],  m: matmul(x, ab)}
        ->   q, k from the split of m, if m costs less than both products

A choice must be acyclic: classes may need each other, expressions may not.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from whet.graph.graph import Node, Result, Value
from whet.superopt.apply.normal import NormalBuilder, maker
from whet.superopt.apply.rewrite import Part
from whet.superopt.saturate.egraph import EGraph


@dataclass(frozen=True, slots=True)
class Option:
    """An e-node as a choice, with classes as numbers: it gives some and needs others."""

    cost: float
    gives: tuple[int, ...]
    needs: tuple[int, ...]


Choice = Mapping[int, int]
"""The number of the option that each class is taken from."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Options over classes 0, 1, ..., of which some are wanted."""

    options: tuple[Option, ...]
    wanted: tuple[int, ...]
    classes: int

    def givers(self) -> list[list[int]]:
        """For each class the options that give it."""
        found: list[list[int]] = [[] for _ in range(self.classes)]
        for n, option in enumerate(self.options):
            for c in dict.fromkeys(option.gives):
                found[c].append(n)
        return found

    def used(self, choice: Choice) -> tuple[int, ...] | None:
        """The options that the wanted classes need, inputs first; None if the choice lacks a
        class or goes in a circle."""
        order: dict[int, None] = {}
        open_: set[int] = set()
        stack = [(c, False) for c in reversed(self.wanted)]
        while stack:
            c, ready = stack.pop()
            if c not in choice:
                return None
            option = choice[c]
            if ready:
                order.setdefault(option)
                open_.discard(c)
                continue
            if c in open_:
                return None
            if option in order:
                continue
            open_.add(c)
            stack.append((c, True))
            stack += [(need, False) for need in self.options[option].needs]
        return tuple(order)

    def cost(self, choice: Choice) -> float:
        """The sum over the options used; infinite if the choice cannot be made."""
        used = self.used(choice)
        return math.inf if used is None else sum(self.options[n].cost for n in used)


def greedy(problem: Problem) -> Choice | None:
    """For every class the option whose expression costs least as a tree (Knuth's algorithm).

    What is shared counts as often as it is read, so merges are often missed; but a choice rests on
    classes that were settled before, so that it is acyclic.
    """
    readers: dict[int, list[int]] = {}
    for n, option in enumerate(problem.options):
        for c in set(option.needs):
            readers.setdefault(c, []).append(n)
    missing = [len(set(o.needs)) for o in problem.options]
    settled: dict[int, float] = {}
    choice: dict[int, int] = {}
    order = itertools.count()
    queue = [(o.cost, next(order), n) for n, o in enumerate(problem.options) if not missing[n]]
    heapq.heapify(queue)
    while queue:
        cost, _, n = heapq.heappop(queue)
        for c in problem.options[n].gives:
            if c in settled:
                continue
            settled[c], choice[c] = cost, n
            for reader in readers.get(c, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    option = problem.options[reader]
                    total = option.cost + sum(settled[i] for i in set(option.needs))
                    heapq.heappush(queue, (total, next(order), reader))
    return choice if all(c in choice for c in problem.wanted) else None


def without_circles(problem: Problem) -> Problem:
    """The problem without options that close a circle with those before them.

        q: split(m)[0], m: matmul(x, ab) | concat(q, k)   ->   m: matmul(x, ab)

    Options are e-nodes, oldest first, so the graph that was there first stays: where one of its
    e-nodes closes a circle, its class has an older one.  TenSAT filters in this way (MLSys'21,
    section 5.2): the integer program is solved many times faster, and most circles are data that is
    moved back and forth.  Options that are left out give nothing, so that numbers stay.
    """
    reach = [1 << c for c in range(problem.classes)]
    kept: list[Option] = []
    for option in problem.options:
        needs = 0
        for c in set(option.needs):
            needs |= reach[c]
        gives = tuple(c for c in option.gives if not needs >> c & 1)
        kept.append(Option(option.cost, gives, option.needs if gives else ()))
        given = sum(1 << c for c in set(gives))
        for c in range(problem.classes):
            if reach[c] & given:
                reach[c] |= needs
    return Problem(tuple(kept), problem.wanted, problem.classes)


# -------------------------------------------------------------------------- from and to e-graphs
@dataclass(frozen=True, eq=False)
class Extraction:
    """The problem of an e-graph, with its e-nodes in the order of the options."""

    graph: EGraph
    problem: Problem
    nodes: tuple[Node, ...]
    numbers: Mapping[Value, int]
    """The classes' numbers, by their leaders."""

    def part(self, choice: Choice) -> tuple[Part, Mapping[Node, tuple[Value, ...]]]:
        """The chosen part, and what the chosen e-nodes have become in it."""
        used = self.problem.used(choice)
        assert used is not None, "an acyclic choice"
        graph, builder = self.graph, NormalBuilder()
        first = Part(graph.inputs, graph.outputs)
        originals = {graph.find(v): v for node in first.nodes for v in node.results}
        origin: dict[Value, Value] = {}
        now: dict[Value, Value] = {}
        made: dict[Node, tuple[Value, ...]] = {}

        def value(v: Value) -> Value:
            leader = graph.find(v)
            if leader not in now:
                now[leader] = next(m for m in graph.members(leader) if _is_leaf(graph, m))
            return now[leader]

        for n in used:
            node = self.nodes[n]
            made[node] = builder.results(node.op, *map(value, node.inputs))
            for old, new in zip(node.results, made[node]):
                leader = graph.find(old)
                if choice.get(self.numbers[leader]) != n:
                    continue
                now[leader] = new
                was = maker(originals.get(leader, new))
                if was is not None and was.op == node.op:
                    origin[new] = originals.get(leader, new)
        return Part(graph.inputs, tuple(map(value, graph.outputs)), origin), made


def _is_leaf(graph: EGraph, value: Value) -> bool:
    return not isinstance(value, Result) or value in graph.inputs


def extraction(graph: EGraph, cost: Callable[[Node], float]) -> Extraction:
    """The problem of an e-graph: options are e-nodes that the outputs may need and that can be
    computed without a circle, oldest first."""
    nodes = sorted(_computable(graph, _reachable(graph)), key=graph.births.__getitem__)
    numbers: dict[Value, int] = {}

    def number(v: Value) -> int:
        return numbers.setdefault(graph.find(v), len(numbers))

    options = tuple(
        Option(
            cost(node),
            tuple(map(number, node.results)),
            tuple(number(v) for v in node.inputs if not graph.is_given(v)),
        )
        for node in nodes
    )
    wanted = tuple(number(v) for v in graph.outputs if not graph.is_given(v))
    return Extraction(graph, Problem(options, wanted, len(numbers)), tuple(nodes), numbers)


def _reachable(graph: EGraph) -> list[Node]:
    """The e-nodes that the outputs may be computed by."""
    seen: set[Value] = set()
    found: dict[Node, None] = {}
    stack = [graph.find(v) for v in graph.outputs]
    while stack:
        leader = stack.pop()
        if leader in seen or graph.is_given(leader):
            continue
        seen.add(leader)
        for member in graph.members(leader):
            assert isinstance(member, Result)
            if member.node not in found:
                found[member.node] = None
                stack += [graph.find(v) for v in member.node.inputs]
    return list(found)


def _computable(graph: EGraph, nodes: Sequence[Node]) -> list[Node]:
    """Those of the e-nodes of which none needs its own class in every choice."""
    known: set[Value] = set()
    waiting, done = list(nodes), list[Node]()
    while True:
        ready = [
            n for n in waiting if all(graph.is_given(v) or graph.find(v) in known for v in n.inputs)
        ]
        if not ready:
            return done
        done += ready
        known |= {graph.find(v) for n in ready for v in n.results}
        rest = set(ready)
        waiting = [n for n in waiting if n not in rest]
