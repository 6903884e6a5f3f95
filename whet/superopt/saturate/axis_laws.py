"""The laws of carried axes in e-graphs, stated on readings of e-nodes.

    add(q, b), where q = split(m)[0] is known     ->   also read as add(split(m)[0], b)

The laws look at an operator and at what makes its inputs.  A reading is a node whose inputs are
members of their classes that move data: parts of one value, or a concat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True, eq=False)
class Reading:
    """An e-node, and its results as an expression over other members of its inputs' classes."""

    node: Node
    results: tuple[Value, ...]

    @property
    def plain(self) -> Node | None:
        """The node of the reading, unless it was simplified to something else."""
        made = maker(self.results[0])
        return made if isinstance(self.results[0], Result) and made and made.op == self.node.op else None  # fmt: skip


def axis_laws(graph: EGraph, several: bool) -> Iterator[Rewrite]:
    """What follows from carried axes; with `several` also operators that reduce, put together.

    Products of such merges are not merged again: larger groups do it at once.
    """
    builder = NormalBuilder()
    readings = [r for node in graph.nodes for r in _readings(graph, builder, node)]
    for reading in readings:
        yield Rewrite(f"read-{reading.node.op.name}", "exact", reading.node.results, reading.results)
    plain = [node for r in readings if (node := r.plain) is not None]
    yield from _cuts(graph, builder)
    yield from _parts(graph, builder, [*graph.nodes, *plain])
    yield from _merges(graph, builder, plain, several)


def _readings(graph: EGraph, builder: NormalBuilder, node: Node) -> Iterator[Reading]:
    if node.op.host or not node.inputs:
        return
    by_base: dict[Value, dict[int, Value]] = {}
    joined: list[dict[int, Value]] = []
    for n, v in enumerate(node.inputs):
        for member in graph.members(v):
            run = run_of(member)
            made = maker(member)
            if run is not None:
                by_base.setdefault(run.base, {}).setdefault(n, member)
            elif made is not None and isinstance(made.op, Concat) and isinstance(member, Result):
                joined.append({n: member})
    for changed in [*by_base.values(), *joined][:MOST_READINGS]:
        inputs = tuple(changed.get(n, v) for n, v in enumerate(node.inputs))
        if any(a is not b for a, b in zip(inputs, node.inputs)):
            results = builder.results(node.op, *inputs)
            if all(a.type == b.type for a, b in zip(results, node.results)):
                yield Reading(node, results)


def _cuts(graph: EGraph, builder: NormalBuilder) -> Iterator[Rewrite]:
    """Slices in front of any operator that computes what they cut."""
    for node in graph.nodes:
        run = run_of(node.results[0]) if isinstance(node.op, Slice) else None
        if run is None:
            continue
        for member in graph.members(run.base):
            made = maker(member)
            if made is None or not isinstance(member, Result) or isinstance(made.op, Split | Slice):
                continue
            if len(made.results) > 1 or made.op.host or member in graph.inputs:
                continue
            new = cut(builder, made, run)
            if new is not None and new.type == node.results[0].type:
                yield Rewrite(f"slice-{made.op.name}", "exact", node.results, (new,))


def _parts(graph: EGraph, builder: NormalBuilder, nodes: list[Node]) -> Iterator[Rewrite]:
    """Operators on a concat, part by part."""
    part = Part(graph.inputs, graph.outputs)
    for node in nodes:
        if len(node.results) != 1 or node.op.host or isinstance(node.op, Concat):
            continue
        makers = (maker(v) for v in node.inputs)
        if any(m is not None and isinstance(m.op, Concat) for m in makers):
            for along in mergeable_axes(node.op, node_types(node)):
                made = apart(builder, node, along)
                if made is not None and admit(part, made):
                    yield made


def _merges(
    graph: EGraph, builder: NormalBuilder, readings: list[Node], several: bool
) -> Iterator[Rewrite]:
    """Operators put together: those that share inputs, and those of the parts of one value."""
    single = [n for n in graph.nodes if fresh(graph, n) or not sums_up(n.op, node_types(n))]
    nodes = list(dict.fromkeys((*single, *readings)))
    part = Part(graph.inputs, tuple(v for n in nodes for v in n.results))
    ancestors = ancestors_of(part)
    for along, members in families(part, nodes, several):
        once = {graph.add(n.results[0]): n for n in reversed(members)}
        chosen = [n for n in members if once[graph.add(n.results[0])] is n]
        for group in independent_groups(part, chosen, ancestors):
            made = merged(builder, along, group) if len(group) > 1 else None
            if made is not None and admit(part, made):
                yield made

