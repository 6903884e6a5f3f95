"""The places where two graphs with the same outputs differ, and whether they agree there.

    before: tanh(matmul(slice(layer_norm(x)), w))      after: tanh(matmul(layer_norm(slice(x)), w))
    difference: slice(layer_norm(x)) and layer_norm(slice(x)), over the input x

Values are interned, so what lies in front of every change is the same object in both graphs; behind
it, nodes of one graph have a twin in the other: the same operator, on inputs that differ as whole
values do and not as constants.  What is left is the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whet.core.types import Array
from whet.graph.graph import Constant, Graph, Node, Result, Value, apply, make_input
from whet.graph.interpret import interpret
from whet.joint.checking import random_inputs, relative_difference

MOST_LAYERS = 6
"""By so many layers a difference grows before all of both graphs is compared."""
AGREE = 1e-3
"""Values that differ by more than this share of the largest one are taken for different values."""

Pair = tuple[Value, Value]
"""A value of the graph before, and the one in its place after."""


@dataclass(frozen=True, eq=False)
class Difference:
    """Nodes of two graphs that have no counterpart in the other one."""

    before: tuple[Node, ...]
    after: tuple[Node, ...]
    ends: tuple[Pair, ...]
    """The values that leave the difference; equal, if both graphs compute the same."""
    twins: Mapping[Node, Node]
    """Nodes behind the difference: of the graph after, and of the one before."""

    def same(self, value: Value) -> Value:
        """The value of the graph before that a value outside of the difference is."""
        if isinstance(value, Result) and value.node in self.twins:
            return self.twins[value.node].results[value.index]
        return value

    @cached_property
    def entries(self) -> tuple[Value, ...]:
        """The values of the graph before that enter the difference."""
        inside = {*self.before, *self.after}
        read = [v for node in (*self.before, *self.after) for v in node.inputs]
        read += [v for pair in self.ends for v in pair]
        outside = (
            self.same(v)
            for v in read
            if not isinstance(v, Constant) and not (isinstance(v, Result) and v.node in inside)
        )
        return tuple(dict.fromkeys(outside))

    @cached_property
    def sides(self) -> tuple[Graph, Graph]:
        """Both sides as graphs of their own, over the values that enter."""
        names = tuple(f"y{n}" for n in range(len(self.ends)))
        inputs = {v: make_input(f"x{n}", v.tensor_type) for n, v in enumerate(self.entries)}
        made = []
        for nodes, ends in zip((self.before, self.after), zip(*self.ends)):
            now: dict[Value, Value] = dict(inputs)

            def value(v: Value, now: Mapping[Value, Value] = now) -> Value:
                return now[v] if v in now else now.get(self.same(v), v)

            for node in nodes:
                now.update(zip(node.results, apply(node.op, *map(value, node.inputs))))
            made.append(Graph(tuple(inputs.values()), tuple(map(value, ends)), names))
        return made[0], made[1]

    def components(self) -> list[Difference]:
        """The difference by places that have nothing to do with each other."""
        parent: dict[Node, Node] = {n: n for n in (*self.before, *self.after)}

        def root(node: Node) -> Node:
            while parent[node] is not node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        def join(values: Sequence[Value], node: Node) -> None:
            for v in values:
                if isinstance(v, Result) and v.node in parent:
                    parent[root(v.node)] = root(node)

        for node in parent:
            join(node.inputs, node)
        for pair in self.ends:
            for v in pair:
                if isinstance(v, Result) and v.node in parent:
                    join(pair, v.node)
        found: dict[Node, None] = dict.fromkeys(root(node) for node in parent)

        def lies(v: Value, at: Node) -> bool:
            return isinstance(v, Result) and v.node in parent and root(v.node) is at

        return [
            Difference(
                tuple(n for n in self.before if root(n) is at),
                tuple(n for n in self.after if root(n) is at),
                tuple(p for p in self.ends if any(lies(v, at) for v in p)),
                self.twins,
            )
            for at in found
        ]


NONE: frozenset[Node] = frozenset()


def difference(
    before: Graph, after: Graph, apart: frozenset[Node] = NONE, inside: frozenset[Node] = NONE
) -> Difference:
    """The difference of two graphs with the same outputs.

    Nodes `apart` of the graph after have no twin, and those that both graphs have are part of the
    difference if they are `inside`.
    """
    common = {*before.nodes} & {*after.nodes}
    twins: dict[Node, Node] = {}
    taken: set[Node] = set()
    ends: dict[Pair, None] = {}
    stack: list[Pair] = list(zip(before.outputs, after.outputs, strict=True))
    while stack:
        old, new = stack.pop()
        if old is new:
            continue
        a, b = (v.node if isinstance(v, Result) else None for v in (old, new))
        if b is not None and twins.get(b) is a and a is not None:
            continue
        usable = a is not None and b is not None and b not in apart and b not in twins
        if usable and a not in taken and not {a, b} & common and _alike(old, new):
            assert a is not None
            assert b is not None
            twins[b] = a
            taken.add(a)
            stack += zip(a.inputs, b.inputs)
        else:
            ends[old, new] = None
    outside = common - inside
    gone = tuple(n for n in before.nodes if n not in outside and n not in taken)
    made = tuple(n for n in after.nodes if n not in outside and n not in twins)
    return Difference(gone, made, tuple(ends), twins)


def _alike(old: Value, new: Value) -> bool:
    """Whether two results come from the same operator, applied to values of the same types."""
    assert isinstance(old, Result)
    assert isinstance(new, Result)
    a, b = old.node, new.node
    if old.index != new.index or a.op != b.op or len(a.inputs) != len(b.inputs):
        return False
    return all(
        v is w or (v.type == w.type and not isinstance(v, Constant) and not isinstance(w, Constant))
        for v, w in zip(a.inputs, b.inputs)
    )


# ---------------------------------------------------------------------------------------- errors
@dataclass(frozen=True, eq=False)
class Compared:
    """A difference and how far both sides are apart, in double precision on random inputs,
    relative to the largest element."""

    difference: Difference
    error: float


def compared(before: Graph, after: Graph, seed: int = 0) -> Compared:
    """The difference of two graphs that are meant to compute the same, as small as it agrees.

    The smallest may not.  Twins are found from the outputs on, and may be found beyond a change:
    `neg(relu(x))` and `neg(x)` both begin with a neg.  And a change may rest on where values come
    from: `relu(relu(x))` is `relu(x)` only because the inner relu is one.  So the difference grows,
    by nodes that read what does not agree, or by those in front of it.
    """
    for n in range(MOST_LAYERS + 1):
        for up, down in dict.fromkeys([(n, 0), (0, n), (n, n)]):
            found = _grown(before, after, up, down, seed)
            if found.error <= AGREE:
                return found
    everything = difference(before, after, frozenset(after.nodes), frozenset(before.nodes))
    return Compared(everything, max(_errors(everything, seed), default=0.0))


def _grown(before: Graph, after: Graph, up: int, down: int, seed: int) -> Compared:
    """The difference with so many layers of nodes in front of it and behind it."""
    apart = inside = NONE
    found = difference(before, after)
    for _ in range(up):
        makers = frozenset(v.node for v in found.entries if isinstance(v, Result))
        inside |= makers
        apart |= {new for new, old in found.twins.items() if old in makers}
        found = difference(before, after, apart, inside)
    errors = _errors(found, seed)
    for _ in range(down):
        wrong = {new for (_, new), error in zip(found.ends, errors) if not error <= AGREE}
        apart |= {n for n in found.twins if any(v in wrong for v in n.inputs)}
        found = difference(before, after, apart, inside)
        errors = _errors(found, seed)
    return Compared(found, max(errors, default=0.0))


def _errors(found: Difference, seed: int) -> list[float]:
    if not found.ends:
        return []
    before, after = found.sides
    arrays = random_inputs(before, seed)
    with np.errstate(all="ignore"):
        sides = (interpret(g, arrays, precise=True) for g in (before, after))
        return [_error(a, b) for a, b in zip(*sides)]


def _error(a: Array, b: Array) -> float:
    if a.dtype.kind == b.dtype.kind == "f" and a.shape == b.shape:
        return relative_difference(a, b)
    return 0.0 if a.dtype == b.dtype and np.array_equal(a, b) else np.inf


# ----------------------------------------------------------------------------------------- names
def carried_names(found: Difference, names: Mapping[Node, str]) -> dict[Node, str]:
    """The names of the nodes of the graph after: of twins those of their counterparts, of new nodes
    those of what they stand for, as far as the operators tell."""
    carried = dict(names)
    for new, old in found.twins.items():
        if old in names:
            carried[new] = names[old]
    for part in found.components():
        carried |= {node: name for node, name in _inherited(part, names) if node not in carried}
    return carried


def _inherited(part: Difference, names: Mapping[Node, str]) -> Iterator[tuple[Node, str]]:
    """Names for new nodes: one by one where as many were before, else together."""
    for op in dict.fromkeys(node.op.name for node in part.after):
        made = [node for node in part.after if node.op.name == op]
        gone = [names[node] for node in part.before if node.op.name == op and node in names]
        if len(made) == len(gone):
            yield from zip(made, gone)
        elif len(made) == 1 < len(gone):
            yield made[0], f"{gone[0]} + {len(gone) - 1}"
