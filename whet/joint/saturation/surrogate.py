"""The price of an e-node by itself: the surrogate that extraction adds up.

    matmul, conv, softmax    ->   seconds of a kernel for this operator alone
    add, relu, split         ->   a share of what its result costs on its way between kernels

Prices of graphs are no sums over operators: what follows a product is computed in its kernel, and
parts of a value are views.  How much of light operators remains differs from graph to graph, so
extraction is done for several shares, and every graph found is priced as it would be compiled.
Operators on constants alone are constants, and cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from whet.core.types import TensorType
from whet.graph.graph import Constant, Node, Value, apply, make_input
from whet.joint.pricing import part_price
from whet.ops.base import Op
from whet.superopt.apply.axis_rules import node_types, sums_up
from whet.superopt.apply.rewrite import Part
from whet.tasks.price import Price

UNKNOWN = 1.0
"""Seconds of an operator that has no price: more than any way around it."""
SMALLEST = 1e-10
"""Seconds of any e-node: of equally good choices the one with fewer operators is taken."""

_Kind = tuple[Op, tuple[TensorType, ...], tuple[bool, ...]]


@dataclass(eq=False)
class Surrogate:
    """Costs of e-nodes, each kind priced once."""

    price: Price
    _known: dict[_Kind, float] = field(default_factory=dict)

    def __call__(self, node: Node, share: float) -> float:
        if not is_heavy(node):
            nbytes = sum(v.tensor_type.nbytes for v in node.results)
            return SMALLEST + share * self.price.between(nbytes)
        constant = tuple(isinstance(v, Constant) for v in node.inputs)
        kind = (node.op, node_types(node), constant)
        if kind not in self._known:
            self._known[kind] = self._alone(node)
        return SMALLEST + self._known[kind]

    def _alone(self, node: Node) -> float:
        given: list[Value] = [
            v if isinstance(v, Constant) else make_input(f"taken {n}", v.tensor_type)
            for n, v in enumerate(node.inputs)
        ]
        inputs = tuple(v for v in given if not isinstance(v, Constant))
        part = Part(inputs, apply(node.op, *given))
        seconds = part_price(part, {}, part, self.price)
        return seconds if math.isfinite(seconds) else UNKNOWN


def is_heavy(node: Node) -> bool:
    """Whether the operator needs a kernel of its own: it reduces, or is written out in others."""
    return node.op.compute is None or sums_up(node.op, node_types(node))
