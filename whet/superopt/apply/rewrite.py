"""Rewrites: values of a graph and those that may stand in their places.

    relu(x), relu(y)   ->   split(relu(concat(x, y)))

A rewrite is applied by rebuilding what depends on the replaced values.  `admit` refuses those that
would change a type or make a cycle: no new value may need one that it helps to replace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from whet.graph.graph import Node, Result, Value, readers, topological
from whet.ops.base import Numeric
from whet.superopt.apply.normal import NormalBuilder


@dataclass(frozen=True, eq=False)
class Rewrite:
    """Values and their replacements, in order, with the rule that allows it."""

    rule: str
    numeric: Numeric
    old: tuple[Value, ...]
    new: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.rule} at {', '.join(str(v.type) for v in self.old)}"


@dataclass(frozen=True, eq=False)
class Part:
    """A graph as rewrites see it: the nodes that the outputs need beyond the inputs."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: Mapping[Value, Value] = field(default_factory=dict)
    """For values that were rebuilt by the same operator on new inputs: which they were at first."""
    nodes: tuple[Node, ...] = field(init=False)
    users: Mapping[Value, tuple[Node, ...]] = field(init=False)
    position: Mapping[Node, int] = field(init=False)
    needed: frozenset[Value] = field(init=False)
    """The outputs, to look them up."""

    def __post_init__(self) -> None:
        nodes = topological(self.outputs, self.inputs)
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "users", readers(nodes))
        object.__setattr__(self, "position", {node: n for n, node in enumerate(nodes)})
        object.__setattr__(self, "needed", frozenset(self.outputs))

    @cached_property
    def levels(self) -> Mapping[Node, int]:
        """The number of nodes on the longest way from each node to the end."""
        found: dict[Node, int] = {}
        for node in reversed(self.nodes):
            users = (u for v in node.results for u in self.users.get(v, ()))
            found[node] = 1 + max((found[u] for u in users), default=0)
        return found


def admit(part: Part, rewrite: Rewrite) -> bool:
    """Whether the rewrite keeps types and makes no cycle."""
    if any(a.type != b.type for a, b in zip(rewrite.old, rewrite.new, strict=True)):
        return False
    if all(a is b for a, b in zip(rewrite.old, rewrite.new)):
        return False
    replaced = {v.node for v in rewrite.old if isinstance(v, Result)}
    return not any(
        node in replaced and any(v in rewrite.old for v in node.results)
        for node in topological(rewrite.new, part.inputs)
    )


def applied(
    part: Part,
    rewrites: Sequence[Rewrite],
    builder: Callable[[], NormalBuilder] = NormalBuilder,
) -> Part:
    """The part with all these rewrites applied; those of independent places, each admitted."""
    b = builder()
    origin: dict[Value, Value] = dict(part.origin)
    asked = {o: n for r in rewrites for o, n in zip(r.old, r.new, strict=True) if o is not n}
    now: dict[Value, Value] = {v: v for v in part.inputs}

    def rebuilt(roots: Sequence[Value]) -> None:
        """Fills `now` for all that the roots need, following replacements."""
        stack: list[Value] = list(roots)
        open_: set[Value] = set()
        while stack:
            v = stack[-1]
            if v in now or not isinstance(v, Result):
                now.setdefault(v, v)
                stack.pop()
                continue
            needs = (asked[v],) if v in asked else v.node.inputs
            missing = [i for i in needs if i not in now]
            if missing:
                if v in open_:
                    raise CycleError(v)
                open_.add(v)
                stack += missing
                continue
            stack.pop()
            open_.discard(v)
            if v in asked:
                now[v] = now[asked[v]]
                continue
            inputs = tuple(now[i] for i in v.node.inputs)
            same = all(a is c for a, c in zip(inputs, v.node.inputs))
            results = v.node.results if same else b.results(v.node.op, *inputs)
            pairs = list(zip(v.node.results, results, strict=True))
            now.update((old, new) for old, new in pairs if old not in asked)
            if not same:
                origin.update(
                    (new, origin.get(old, old))
                    for old, new in pairs
                    if isinstance(new, Result) and new.node.op == v.node.op
                )

    rebuilt(part.outputs)
    return Part(part.inputs, tuple(now[v] for v in part.outputs), origin)


def disjoint(rewrites: Iterable[Rewrite]) -> list[Rewrite]:
    """Those of the rewrites that replace nothing that one before them does."""
    taken: set[Value] = set()
    chosen = []
    for rewrite in rewrites:
        if taken.isdisjoint(rewrite.old):
            taken.update(rewrite.old)
            chosen.append(rewrite)
    return chosen


class CycleError(Exception):
    """Rewrites that need each other's results."""
