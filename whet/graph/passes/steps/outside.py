"""Values of a body, computed in the graph around the scan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Node, Value, topological
from whet.graph.passes.steps.kinds import Kinds
from whet.graph.passes.steps.lifting import Lifted
from whet.graph.passes.steps.scans import Stack, in_direction, stack_of_input
from whet.ops.movement import Reshape


class Outside:
    """Builds what a body computes outside it, once or for all steps at once."""

    def __init__(self, b: GraphBuilder, kinds: Kinds, lifted: Mapping[Node, Lifted]) -> None:
        self.b, self.kinds, self.lifted = b, kinds, lifted
        self.wholes: dict[Value, Value] = dict(kinds.parts.wholes)
        self.stacks: dict[Value, Stack] = {}

    def build(self, values: Iterable[Value]) -> None:
        """Makes these values known, with all that they depend on."""
        roots = list(values)
        for node in topological(roots, self.wholes.keys() | self.stacks.keys()):
            if node in self.lifted:
                results = self._stacked(node, self.lifted[node])
                self.stacks.update(zip(node.results, results, strict=True))
            else:
                made = self.b.results(node.op, *map(self.whole, node.inputs))
                self.wholes.update(zip(node.results, made, strict=True))

    def whole(self, value: Value) -> Value:
        return value if isinstance(value, Constant) else self.wholes[value]

    def stack(self, value: Value) -> Stack:
        if value in self.kinds.parts.slices and value not in self.stacks:
            number = self.kinds.parts.slices[value]
            self.stacks[value] = stack_of_input(self.b, self.kinds.parts, number)
        return self.stacks[value]

    def _stacked(self, node: Node, lifted: Lifted) -> tuple[Stack, ...]:
        """The node's results for all steps; they run backward if all its operands do."""
        is_whole = self.kinds.is_whole
        backward = all(self.stack(v).backward for v in node.inputs if not is_whole(v))
        operands = []
        for value, inserted in zip(node.inputs, lifted.inserted, strict=True):
            if is_whole(value):
                operands.append(self.whole(value))
                continue
            operand = in_direction(self.b, self.stack(value), backward)
            length, *shape = operand.tensor_type.shape
            if inserted:
                operand = self.b.one(Reshape((length, *(1,) * inserted, *shape)), operand)
            operands.append(operand)
        made = self.b.results(lifted.op, *operands)
        return tuple(Stack(v, backward) for v in made)
