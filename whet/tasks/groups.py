"""Groups of nodes that one kernel computes, and the ways between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from whet.graph.graph import Node, Result, Value
from whet.tasks.dag import Dag
from whet.tasks.structure import structure_of


@dataclass(eq=False)
class Group:
    """Nodes that one kernel computes, in topological order."""

    nodes: list[Node] = field(default_factory=list)
    heavy: bool = False
    """Holds a contraction or a window: its work must not be repeated or torn apart."""
    opaque: bool = False
    """No tensor expressions: a loop program or a host operator."""

    def outputs(self, graph: Dag) -> tuple[Value, ...]:
        """The values that other groups or the caller need."""
        inside = set(self.nodes)
        wanted = set(graph.outputs)
        return tuple(
            v
            for node in self.nodes
            for v in node.results
            if v in wanted or any(u not in inside for u in graph.users.get(v, ()))
        )

    def inputs(self) -> tuple[Value, ...]:
        inside = set(self.nodes)
        found = [v for node in self.nodes for v in node.inputs]
        return tuple(
            dict.fromkeys(v for v in found if not (isinstance(v, Result) and v.node in inside))
        )


Judge = Callable[[Group, Group], bool]
"""Says whether two groups, of which the second reads the first, can be one."""
Chain = Callable[[Sequence[Group]], bool]
"""Says whether groups, each of which reads the one before, should be one."""


def passed_on(graph: Dag, first: Group, last: Group) -> Value | None:
    """The one value that the first group computes, if the last group alone reads it."""
    results = first.outputs(graph)
    if len(results) != 1 or results[0] in graph.outputs:
        return None
    readers = graph.users[results[0]]
    return results[0] if all(reader in last.nodes for reader in readers) else None


def producers(group: Group, owner: Mapping[Node, Group]) -> list[Group]:
    """The groups whose results this one reads directly."""
    nodes = [v.node for v in group.inputs() if isinstance(v, Result)]
    return list(dict.fromkeys(owner[n] for n in nodes if n in owner and owner[n] is not group))


def reduces(node: Node) -> bool:
    """Whether a node sums, or takes the largest of, anything."""
    s = structure_of(node)
    return s is not None and bool(s.reduces)


def detour(graph: Dag, first: Group, last: Group, owner: Mapping[Node, Group]) -> bool:
    """True when a third group lies between the two: merging them would make a cycle.

    Groups run as a whole, so a way through one may enter at a node and leave at another that
    does not depend on it:   first -> h1, h2 -> last   with h1 and h2 in one group.
    """
    ends = (first, last)
    seen: set[Group | Node] = set()
    frontier = [unit for unit in _readers(graph, first.nodes, owner) if unit not in ends]
    while frontier:
        unit = frontier.pop()
        if unit in seen:
            continue
        seen.add(unit)
        nodes = unit.nodes if isinstance(unit, Group) else [unit]
        readers = _readers(graph, nodes, owner)
        if last in readers:
            return True
        frontier += [reader for reader in readers if reader not in seen]
    return False


def _readers(graph: Dag, nodes: Sequence[Node], owner: Mapping[Node, Group]) -> list[Group | Node]:
    """The groups, and views that belong to none, that read what the nodes compute."""
    users = (u for node in nodes for v in node.results for u in graph.users.get(v, ()))
    return list(dict.fromkeys(owner.get(u, u) for u in users))


def in_order(
    groups: list[Group], owner: Mapping[Node, Group], is_view: Mapping[Node, bool]
) -> tuple[Group, ...]:
    """The groups sorted so that each follows those it needs, views looked through."""
    order: dict[Group, None] = {}
    stack = [(g, False) for g in reversed(groups)]
    while stack:
        group, ready = stack.pop()
        if group in order:
            continue
        if ready:
            order[group] = None
            continue
        stack.append((group, True))
        stack += [(g, False) for g in _needs(group, owner, is_view) if g not in order]
    position = {group: n for n, group in enumerate(order)}
    for group in order:
        if any(position[g] > position[group] for g in _needs(group, owner, is_view)):
            raise AssertionError("groups need each other")
    return tuple(order)


def _needs(group: Group, owner: Mapping[Node, Group], is_view: Mapping[Node, bool]) -> list[Group]:
    """The groups that compute what this one reads."""
    found: dict[Group, None] = {}
    values = list(group.inputs())
    while values:
        v = values.pop()
        if not isinstance(v, Result):
            continue
        if v.node in owner:
            if owner[v.node] is not group:
                found[owner[v.node]] = None
        elif is_view.get(v.node):
            values += v.node.inputs
    return list(found)
