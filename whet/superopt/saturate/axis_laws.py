"""The laws of carried axes in e-graphs, stated on readings of e-nodes.

    add(q, b), where q = split(m)[0] is known     ->   also read as add(split(m)[0], b)

The laws look at an operator and at what makes its inputs.  A reading is a node whose inputs are
members of their classes that move data: parts of one value, or a concat.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from whet.graph.graph import Node, Result, Value
from whet.ops.movement import Concat, Slice, Split
from whet.superopt.apply.axis_rules import (
    ancestors_of,
    apart,
    cut,
    families,
    independent_groups,
    mergeable_axes,
    merged,
    node_types,
    sums_up,
)
from whet.superopt.apply.normal import NormalBuilder, maker, run_of
from whet.superopt.apply.rewrite import Part, Rewrite, admit
from whet.superopt.saturate.egraph import EGraph
from whet.superopt.saturate.ematch import fresh

MOST_READINGS = 6
"""Readings of one e-node."""


class AxisLaws:
    """Laws of carried axes in one e-graph; each is used once at the same nodes."""

    def __init__(self, graph: EGraph) -> None:
        self.graph, self.builder = graph, NormalBuilder()
        self._seen: set[Hashable] = set()
        self._readings: dict[Node, Node] = {}
        """Readings, and the e-nodes that they were made of."""

    def rewrites(self, several: bool, over: Callable[[], bool]) -> Iterator[Rewrite]:
        """New equations, until it is over; with `several` also operators that reduce, put together.

        Products of such merges are not merged again: larger groups do it at once.
        """
        live = set(self.graph.nodes)
        self._readings = {r: n for r, n in self._readings.items() if n in live}
        for node in self.graph.nodes:
            if not over():
                yield from self._read(node)
        for law in (self._cuts(), self._parts(), self._merges(several)):
            if not over():
                yield from law

    def _new(self, key: Hashable) -> bool:
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _read(self, node: Node) -> Iterator[Rewrite]:
        """Readings of an e-node; those that are simplified are equations."""
        if node.op.host:
            return
        for inputs in self._other_inputs(node)[:MOST_READINGS]:
            if all(a is b for a, b in zip(inputs, node.inputs)):
                continue
            if not self._new(("read", node, inputs)):
                continue
            results = self.builder.results(node.op, *inputs)
            made = maker(results[0])
            if made is not None and isinstance(results[0], Result) and made.op == node.op:
                self._readings[made] = node
            if all(a.type == b.type for a, b in zip(results, node.results)):
                yield Rewrite(f"read-{node.op.name}", "exact", node.results, results)

    def _other_inputs(self, node: Node) -> list[tuple[Value, ...]]:
        """The inputs as parts of one value, as far as they are, for each such value; and each input
        as a concat."""
        by_base: dict[Value, dict[int, Value]] = {}
        joined: list[dict[int, Value]] = []
        for n, v in enumerate(node.inputs):
            for member in self.graph.members(v):
                run = run_of(member)
                made = maker(member)
                if run is not None:
                    by_base.setdefault(run.base, {}).setdefault(n, member)
                elif made is not None and isinstance(made.op, Concat):
                    joined += [{n: member}] if isinstance(member, Result) else []
        return [
            tuple(changed.get(n, v) for n, v in enumerate(node.inputs))
            for changed in (*by_base.values(), *joined)
        ]

    def _cuts(self) -> Iterator[Rewrite]:
        """Slices in front of any operator that computes what they cut."""
        for node in self.graph.nodes:
            run = run_of(node.results[0]) if isinstance(node.op, Slice) else None
            for member in self.graph.members(run.base) if run is not None else ():
                if not isinstance(member, Result) or member in self.graph.inputs:
                    continue
                made = member.node
                if len(made.results) > 1 or made.op.host or isinstance(made.op, Split | Slice):
                    continue
                if run is None or not self._new(("cut", node, made)):
                    continue
                new = cut(self.builder, made, run)
                if new is not None and new.type == node.results[0].type:
                    yield Rewrite(f"slice-{made.op.name}", "exact", node.results, (new,))

    def _parts(self) -> Iterator[Rewrite]:
        """Operators on a concat, part by part."""
        part = Part(self.graph.inputs, self.graph.outputs)
        for node in (*self.graph.nodes, *self._readings):
            if len(node.results) != 1 or node.op.host or isinstance(node.op, Concat):
                continue
            makers = (maker(v) for v in node.inputs)
            if not any(m is not None and isinstance(m.op, Concat) for m in makers):
                continue
            if self._new(("apart", node)):
                for along in mergeable_axes(node.op, node_types(node)):
                    made = apart(self.builder, node, along)
                    if made is not None and admit(part, made):
                        yield made

    def _merges(self, several: bool) -> Iterator[Rewrite]:
        """Operators put together: those that share inputs, and those of the parts of one value."""
        graph = self.graph
        single = [n for n in graph.nodes if fresh(graph, n) or not sums_up(n.op, node_types(n))]
        nodes = list(dict.fromkeys((*single, *self._readings)))
        part = Part(graph.inputs, tuple(v for n in nodes for v in n.results))
        ancestors = ancestors_of(part)
        for along, members in families(part, nodes, several):
            # An e-node and its readings are in one class, of which one is enough.
            by_class = {graph.add(n.results[0]): n for n in reversed(members)}
            chosen = [n for n in members if n in by_class.values()]
            for group in independent_groups(part, chosen, ancestors):
                if self._new(("merge", along, tuple(group))):
                    made = merged(self.builder, along, group)
                    if made is not None and admit(part, made):
                        yield made
