"""Contractions whose result is split: each part can be finished and stored by the one kernel.

    y = conv(x, w);  a, b = split(y);  c = relu(a + p);  d = b * q
        ->   a kernel that computes y and stores c and d, each where it belongs

    a, b = split(x @ w);  y = a * sigmoid(a) * b
        ->   a kernel that computes y, of two columns of x @ w each

Otherwise parts are views of y: free, but then what is computed of each is a kernel of its own, and
so are copies to where a part has zeros around it or lies beside others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from whet.graph.graph import Node, Result, Value
from whet.tasks.dag import Dag
from whet.tasks.structure import in_place, structure_of


@dataclass(frozen=True, eq=False)
class Division:
    """A contraction with element-wise nodes after it, its split, and what follows each part."""

    head: tuple[Node, ...]
    split: Node
    tails: tuple[tuple[Node, ...], ...]
    """Of every part the nodes that alone read it, one after the other."""
    joint: tuple[Node, ...] = ()
    """The nodes that alone read all parts and have one result; tails are empty then."""

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All of them; parts do not need each other, and follow in their own order."""
        after = (node for tail in (*self.tails, self.joint) for node in tail)
        return (*self.head, self.split, *after)


def find_divisions(graph: Dag) -> tuple[Division, ...]:
    """All that can be, so that none needs another that needs it."""
    splits = [node for node in graph.nodes if _is_split(node)]
    return _Finder(graph).divisions(splits) if splits else ()


def _is_split(node: Node) -> bool:
    s = structure_of(node)
    return s is not None and s.is_movement and len(node.results) > 1 and len(node.inputs) == 1


class _Finder:
    def __init__(self, graph: Dag) -> None:
        self.graph = graph
        self.order = {node: n for n, node in enumerate(graph.nodes)}
        self.outer = set(graph.inputs)
        self.wanted = set(graph.outputs)
        self.taken: dict[Node, Division] = {}

    def divisions(self, splits: Sequence[Node]) -> tuple[Division, ...]:
        found: list[Division] = []
        for split in splits:
            head = self.head(split.inputs[0])
            if head is not None:
                made = self.division(head, split)
                self.taken |= dict.fromkeys(made.nodes, made)
                found.append(made)
        return tuple(found)

    def division(self, head: tuple[Node, ...], split: Node) -> Division:
        parts, contraction = split.results, head[0]
        if len({part.tensor_type for part in parts}) == 1:
            joint = self.tail(parts, contraction)
            if joint:
                return Division(head, split, ((),) * len(parts), joint)
        return Division(head, split, tuple(self.tail((part,), contraction) for part in parts))

    def head(self, v: Value) -> tuple[Node, ...] | None:
        """The contraction that a value comes from, and the element-wise nodes between the two that
        nothing else reads."""
        if not isinstance(v, Result) or v in self.outer or v in self.wanted:
            return None
        s = structure_of(v.node)
        alone = len(self.graph.users[v]) == len(v.node.results) == 1
        if s is None or not alone or v.node in self.taken:
            return None
        if s.contraction is not None:
            return (v.node,)
        for x in v.node.inputs:
            before = self.head(x) if in_place(v.node, {x}, v.tensor_type.shape) else None
            if before is not None:
                return (*before, v.node)
        return None

    def tail(self, values: Sequence[Value], contraction: Node) -> tuple[Node, ...]:
        """The element-wise nodes that compute one value of others, and nothing else."""
        tail: list[Node] = []
        while more := self.more(values, contraction):
            tail += more
            values = more[-1].results
        return tuple(tail)

    def more(self, values: Sequence[Value], contraction: Node) -> list[Node]:
        """The next element-wise nodes that alone read values and together have one result.

        Nothing outside can lie between them (see `partition`), but what else they read may need
        another part: then they follow the kernel and are no part of it.
        """
        shape, users = values[0].tensor_type.shape, self.graph.users
        nodes: set[Node] = set()
        computed, results = set(values), list(values)
        while True:
            added = {
                user
                for result in results
                for user in users.get(result, ())
                if user not in nodes and user not in self.taken
                if in_place(user, computed, shape)
                if not self.need([x for x in user.inputs if x not in computed], contraction)
            }
            if not added:
                return []
            nodes |= added
            computed |= {r for node in added for r in node.results}
            results = [
                r for r in computed
                if r in self.wanted or any(u not in nodes for u in users.get(r, ()))
            ]  # fmt: skip
            if len(results) == 1 and results[0] not in values:
                return sorted(nodes, key=self.order.__getitem__)

    def need(self, values: Sequence[Value], contraction: Node) -> bool:
        """Whether any of the values needs the contraction, by itself or through a division, which
        runs as a whole."""
        stack, seen = list(values), set[Node]()
        while stack:
            v = stack.pop()
            if not isinstance(v, Result) or v in self.outer or v.node in seen:
                continue
            together = self.taken[v.node].nodes if v.node in self.taken else (v.node,)
            if contraction in together:
                return True
            seen.update(together)
            stack += [x for node in together for x in node.inputs]
        return False
