"""The surrogate price of e-nodes: the costs that extraction adds up, learned from graphs.

    never tried   ->   matmul, conv, softmax: a kernel for this operator alone
                       add, relu, split: a share of what its result costs between kernels
    tried         ->   its part of the kernel that computed it in a graph

Prices of graphs are no sums over operators: what follows a product is computed in its kernel, parts
of a value are views, and layouts are chosen for a graph as a whole.  Every graph that is extracted
is planned and priced as it would be compiled, and what its kernels take becomes the cost of the
e-nodes in them.  What was never tried looks cheap, and is tried next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from whet.core.types import TensorType
from whet.graph.graph import Constant, Node, Value, apply, make_input
from whet.joint.pricing import part_steps, steps_price
from whet.ops.base import Op
from whet.superopt.apply.axis_rules import node_types, sums_up
from whet.superopt.apply.normal import maker
from whet.superopt.apply.rewrite import Part
from whet.tasks.places import Place
from whet.tasks.price import Price

UNKNOWN = 1.0
"""Seconds of an operator that has no price: more than any way around it."""
SMALLEST = 1e-10
"""Seconds of any e-node: of equally good choices the one with fewer operators is taken."""
FUSED = 0.1
"""The share of light operators that is left when they are computed in another's kernel."""

_Kind = tuple[Op, tuple[TensorType, ...], tuple[bool, ...]]


@dataclass(eq=False)
class Alone:
    """Costs of operators by themselves, each kind priced once."""

    price: Price
    _known: dict[_Kind, float] = field(default_factory=dict)

    def __call__(self, node: Node) -> float:
        if not is_heavy(node):
            nbytes = sum(v.tensor_type.nbytes for v in node.results)
            return SMALLEST + FUSED * self.price.between(nbytes)
        constant = tuple(isinstance(v, Constant) for v in node.inputs)
        kind = (node.op, node_types(node), constant)
        if kind not in self._known:
            self._known[kind] = SMALLEST + self._kernel(node)
        return self._known[kind]

    def _kernel(self, node: Node) -> float:
        given: list[Value] = [
            v if isinstance(v, Constant) else make_input(f"taken {n}", v.tensor_type)
            for n, v in enumerate(node.inputs)
        ]
        inputs = tuple(v for v in given if not isinstance(v, Constant))
        part = Part(inputs, apply(node.op, *given))
        seconds = steps_price(part_steps(part, {}, part, self.price)[0], self.price)
        return seconds if math.isfinite(seconds) else UNKNOWN


def is_heavy(node: Node) -> bool:
    """Whether the operator needs a kernel of its own: it reduces, or is written out in others."""
    return node.op.compute is None or sums_up(node.op, node_types(node))


@dataclass(eq=False)
class Learned:
    """Costs of e-nodes, of which those that were tried in graphs are known better."""

    alone: Alone
    places: Mapping[Value, Place]
    start: Part
    """The part whose outputs' places are taken."""
    _tried: dict[Node, float] = field(default_factory=dict)

    def __call__(self, node: Node) -> float:
        found = self._tried.get(node)
        return self.alone(node) if found is None else found

    def tried(self, part: Part, nodes: Mapping[Node, tuple[Value, ...]]) -> float:
        """The price of a part; what its kernels take is shared among the e-nodes in them."""
        price = self.alone.price
        steps, written = part_steps(part, self.places, self.start, price)
        members: dict[Node | None, list[Node]] = {}
        for node, results in nodes.items():
            for v in results[:1]:
                members.setdefault(maker(written.get(v, v)), []).append(node)
            self._tried[node] = SMALLEST
        total = 0.0
        for step in steps:
            seconds = steps_price([step], price)
            total += seconds
            self._share(seconds, [n for inner in step.nodes for n in members.get(inner, ())])
        return total

    def _share(self, seconds: float, nodes: list[Node]) -> None:
        """Operators that need a kernel pay for it, in proportion; where there is none, all do."""
        paying = [n for n in nodes if is_heavy(n)] or nodes
        weights = [self.alone(n) for n in paying]
        for node, weight in zip(paying, weights):
            self._tried[node] += min(seconds, UNKNOWN) * weight / sum(weights)
