"""Building graphs value by value, with constants folded as they appear."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from whet.core.errors import GraphError, check
from whet.core.types import Array, TensorType
from whet.graph.body import GraphBody, close_body, fresh_inputs
from whet.graph.graph import Constant, Input, Node, Value, apply, make_constant, make_input
from whet.ops.base import Op

FOLD_LIMIT_BYTES = 64 << 20
"""A folded value larger than this stays a node: weights would grow the artifact."""


class GraphBuilder:
    """Applies operators to values; also the `Builder` that `Op.expand` writes into.

    A node whose inputs are all constant becomes a constant at once, which is what makes the
    shape arithmetic of exported models disappear while they are imported.
    """

    def __init__(self) -> None:
        self.names: dict[Node, str] = {}
        self.current_name: str | None = None

    def __call__(self, op: Op, *values: Value) -> Value | tuple[Value, ...]:
        results = self.results(op, *values)
        return results[0] if len(results) == 1 else results

    def one(self, op: Op, *values: Value) -> Value:
        """The single output of the operator."""
        (result,) = self.results(op, *values)
        return result

    def results(self, op: Op, *values: Value) -> tuple[Value, ...]:
        """All outputs of the operator, as a tuple."""
        made = apply(op, *values)
        folded = self.fold(made[0].node) if made else None
        if folded is not None:
            return folded
        if self.current_name is not None:
            self.names.setdefault(made[0].node, self.current_name)
        return made

    def fold(self, node: Node) -> tuple[Value, ...] | None:
        """The node's results as constants, or None if it stays a node."""
        return fold_node(node)

    def constant(self, array: Array) -> Constant:
        return make_constant(np.asarray(array))

    def input(self, name: str, type: TensorType) -> Input:
        return make_input(name, type)

    def type(self, value: Value) -> TensorType:
        return value.tensor_type

    def body(self, types: Sequence[TensorType], step: Callable[..., Sequence[Value]]) -> GraphBody:
        """The graph of `step` on inputs of these types, as an attribute for `scan`."""
        inputs = fresh_inputs(types)
        made, outside = close_body(inputs, step(*inputs))
        check(not outside, "WH1202", "a step reads values from outside", kind=GraphError)
        return made


def fold_node(node: Node) -> tuple[Constant, ...] | None:
    """The node's results as constants, or None if it cannot or should not be folded.

    Not folded: random numbers, loops of unknown length, non-constant inputs, and results that
    are large and larger than what they are computed from (an expanded constant would bloat the
    artifact).
    """
    if not node.op.folds or not all(isinstance(v, Constant) for v in node.inputs):
        return None
    if not node.op.host:
        size = sum(v.tensor_type.nbytes for v in node.results)
        given = sum(v.tensor_type.nbytes for v in node.inputs)
        if size > max(FOLD_LIMIT_BYTES, 2 * given):
            return None
    arrays = tuple(v.array for v in node.inputs if isinstance(v, Constant))
    return tuple(make_constant(r) for r in node.op.run_reference(arrays))
