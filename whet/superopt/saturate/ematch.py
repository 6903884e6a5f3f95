"""Matches of patterns in e-graphs: inputs may be any member of their class.

Patterns, guards, types and roles are checked as in graphs (`apply.match`); a rule with several
terms on its left matches e-nodes that share an input, as TenSAT's multi-patterns do (MLSys'21,
section 4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from whet.graph.graph import Node, Result, Value
from whet.superopt.apply.axis_rules import node_types, sums_up
from whet.superopt.apply.match import Binding, built, fits, further
from whet.superopt.apply.normal import NormalBuilder, maker
from whet.superopt.apply.patterns import Pattern, Patterns
from whet.superopt.apply.rewrite import Part, Rewrite
from whet.superopt.saturate.egraph import EGraph

DEEPEST = 3
"""Operators above each other that patterns look at: a class that grows concerns so many above."""


MOST_MATCHES = 64
"""Rewrites of one pattern in a round, so that no rule alone fills the e-graph."""


class _Users(Mapping[Value, tuple[Node, ...]]):
    """The e-nodes that read the class of a value."""

    def __init__(self, graph: EGraph) -> None:
        self.graph = graph

    def __getitem__(self, value: Value) -> tuple[Node, ...]:
        if value not in self.graph:
            raise KeyError(value)
        return tuple(self.graph.users(value))

    def __iter__(self) -> Iterator[Value]:
        return iter({self.graph.find(v): None for n in self.graph.nodes for v in n.inputs})

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, eq=False)
class EPart(Part):
    """An e-graph in the place of a graph: its e-nodes, and who reads each class."""

    graph: EGraph = field(kw_only=True)

    def __post_init__(self) -> None:
        nodes = self.graph.nodes
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "users", _Users(self.graph))
        object.__setattr__(self, "position", {node: n for n, node in enumerate(nodes)})
        object.__setattr__(self, "needed", frozenset(self.outputs))


class EMatcher:
    """The rewrites that patterns allow in one e-graph; each match is reported once."""

    def __init__(self, patterns: Patterns, graph: EGraph) -> None:
        self.patterns, self.graph = patterns, graph
        self._seen: set[object] = set()
        self._sizes: dict[Value, int] = {}

    def rewrites(self, several: bool, over: Callable[[], bool]) -> Iterator[Rewrite]:
        """The rewrites of new matches, until it is over; without `several` only of patterns with
        one term."""
        graph, builder = self.graph, NormalBuilder()
        part = EPart(graph.inputs, graph.outputs, graph=graph)
        counts: Counter[Pattern] = Counter()
        for node in graph.nodes if several else self._concerned():
            if node.op.host:
                continue
            made = frozenset(
                n.op.name for v in node.inputs for n in map(maker, graph.members(v)) if n
            )
            for pattern in self.patterns.at(node.op.name, made):
                if over():
                    return
                if len(pattern.source) > 1 and not several:
                    continue
                if len(pattern.source) > 1 and not fresh(graph, node):
                    continue
                for value in node.results:
                    for rewrite in self._at(part, builder, pattern, value):
                        if counts[pattern] < MOST_MATCHES:
                            counts[pattern] += 1
                            yield rewrite
        self._sizes = {graph.find(v): len(graph.members(v)) for n in graph.nodes for v in n.results}

    def _at(
        self, part: EPart, builder: NormalBuilder, pattern: Pattern, value: Value
    ) -> Iterator[Rewrite]:
        members = self.graph.members
        for first in fits(pattern, pattern.source[0], value, equal=members):
            for old, bound in further(part, pattern, (value,), first, members):
                key = _key(pattern, old, bound)
                if key not in self._seen and all(
                    isinstance(v, Result) and fresh(self.graph, v.node) for v in old[1:]
                ):
                    self._seen.add(key)
                    yield from built(builder, part, pattern, old, bound)

    def _concerned(self) -> list[Node]:
        """The e-nodes above classes that have grown since the last time."""
        graph = self.graph
        grown: set[Value] = {
            leader
            for n in graph.nodes
            for leader in map(graph.find, n.results)
            if len(graph.members(leader)) != self._sizes.get(leader)
        }
        concerned = {n for v in grown for n in map(maker, graph.members(v)) if n is not None}
        for _ in range(DEEPEST):
            above = {u for v in grown for u in graph.users(v)} - concerned
            concerned |= above
            grown = {graph.find(v) for u in above for v in u.results}
        return [n for n in graph.nodes if n in concerned]


def fresh(graph: EGraph, node: Node) -> bool:
    """Whether an e-node may be put together with others: it reduces, and is not itself something
    that was put together.  What follows such operators is put together by the laws of axes."""
    origin = graph.origins.get(node)
    return (origin is None or len(origin.old) == 1) and sums_up(node.op, node_types(node))


def _key(pattern: Pattern, old: tuple[Value, ...], bound: Binding) -> object:
    return (pattern, old, tuple(bound.tensors.items()), tuple(bound.attributes.items()))
