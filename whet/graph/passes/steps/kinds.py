"""Sorting a body's values: the same in all steps, independent of the state, or neither."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from whet.graph.graph import Constant, Node, Result, Value
from whet.graph.passes.steps.expressions import facts_of
from whet.graph.passes.steps.lifting import Lifted, lift
from whet.graph.passes.steps.scans import ScanParts, has_types
from whet.graph.rewrite import is_steady
from whet.ops.base import Numeric

FREE_BYTES = 64 << 20
"""Values of all steps that take no more than this are kept without counting."""
GROWTH = 4
"""Larger ones may be so many times as large as all that the scan reads."""


@dataclass(frozen=True)
class Kinds:
    """Those values and nodes of a scan's body that can be computed outside it."""

    parts: ScanParts
    numerics: Numeric
    whole: set[Value] = field(default_factory=set)
    """Values that are the same in all steps."""
    lifted: dict[Node, Lifted] = field(default_factory=dict)
    """Nodes that depend on slices but on no state, with what computes them for all steps."""
    products: set[Value] = field(default_factory=set)
    """Results of those of them that are products which pay, and of what is computed from these."""

    def is_whole(self, value: Value) -> bool:
        return isinstance(value, Constant) or value in self.whole

    def is_stepped(self, value: Value) -> bool:
        """Whether the value can be had outside for all steps."""
        return value in self.parts.slices or (
            isinstance(value, Result) and value.node in self.lifted
        )

    def fits(self, values: Iterable[Value], copies: int) -> bool:
        """Whether memory allows so many copies of all the values."""
        return copies * _nbytes(values) <= max(FREE_BYTES, GROWTH * _nbytes(self.parts.values))

    def pays(self, node: Node) -> bool:
        """Whether the node is a product that is cheaper for all steps at once.

        It then reads its whole operand once instead of in every step, and stores what a step brings
        or gives: the operand must be larger than both.  Element-wise work never pays: a kernel of
        the body does it with values that it has at hand.
        """
        facts = facts_of(node.op, tuple(v.tensor_type for v in node.inputs))
        if facts is None or not facts.sums:
            return False
        whole = _nbytes(v for v in node.inputs if self.is_whole(v))
        brought = _nbytes(v for v in node.inputs if not self.is_whole(v))
        return whole > max(brought, _nbytes(node.results))

    def lift(self, node: Node) -> Lifted | None:
        """The node for all steps, whatever its operands depend on; None if that cannot be.

        With other numerics than `real`, the order of sums must not change.
        """
        length = self.parts.op.length
        if not has_types(node) or not self.fits(node.results, length):
            return None
        types = tuple(v.tensor_type for v in node.inputs)
        facts = facts_of(node.op, types)
        if facts is None or (facts.rounds and self.numerics != "real"):
            return None
        return lift(node.op, types, tuple(not self.is_whole(v) for v in node.inputs), length)


def sort_values(parts: ScanParts, numerics: Numeric) -> Kinds:
    """The kinds of all values of a scan's body."""
    kinds = Kinds(parts, numerics, set(parts.wholes))
    for node in parts.body.nodes:
        if not is_steady(node.op) or node.op.host or not has_types(node):
            continue
        if all(map(kinds.is_whole, node.inputs)):
            if kinds.fits(node.results, 1):
                kinds.whole.update(node.results)
        elif all(kinds.is_whole(v) or kinds.is_stepped(v) for v in node.inputs):
            found = kinds.lift(node)
            if found is not None:
                kinds.lifted[node] = found
                if kinds.pays(node) or not kinds.products.isdisjoint(node.inputs):
                    kinds.products.update(node.results)
    return kinds


def _nbytes(values: Iterable[Value]) -> int:
    return sum(v.tensor_type.nbytes for v in values)


def only_moves(node: Node) -> bool:
    """Whether the node's results are elements of its inputs in other places."""
    facts = facts_of(node.op, tuple(v.tensor_type for v in node.inputs))
    return facts is not None and facts.moves
