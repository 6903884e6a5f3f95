"""The parts of a scan: which value of the body is which of the graph around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from whet.core.types import Shape, TensorType
from whet.graph.body import body_between
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Node, Value
from whet.ops.movement import Expand, Reshape, Slice, Transpose
from whet.ops.scan import Scan


@dataclass(frozen=True)
class ScanParts:
    """A scan, the graph of its body, and the values that it is applied to."""

    op: Scan
    body: Graph
    values: tuple[Value, ...]

    @cached_property
    def slices(self) -> Mapping[Value, int]:
        """The body's inputs that are slices, with the number of the value that they are of."""
        return {self.body.inputs[n]: n for n in range(self.op.states, self.op.first_whole)}

    @cached_property
    def wholes(self) -> Mapping[Value, Value]:
        """The body's inputs that are the same in all steps, and what they are."""
        first = self.op.first_whole
        return dict(zip(self.body.inputs[first:], self.values[first:], strict=True))

    @property
    def state_results(self) -> tuple[Value, ...]:
        return self.body.outputs[: self.op.states]

    @property
    def piece_results(self) -> tuple[Value, ...]:
        """The results of a step that are put together, by output."""
        return self.body.outputs[self.op.states :]


@dataclass(frozen=True)
class Stack:
    """A value of all steps, one behind the other along the first axis; `backward` if the last
    step comes first."""

    value: Value
    backward: bool


def has_types(node: Node) -> bool:
    """Whether all shapes around the node are known."""
    return all(isinstance(v.type, TensorType) for v in (*node.inputs, *node.results))


# ------------------------------------------------------------------------------------ placement
def stack_of_input(b: GraphBuilder, parts: ScanParts, number: int) -> Stack:
    """All slices of a scanned value."""
    at = number - parts.op.states
    value, axis = parts.values[number], parts.op.input_axes[at]
    rank = value.tensor_type.rank
    order = (axis, *(n for n in range(rank) if n != axis))
    backward = parts.op.backward_inputs[at]
    return Stack(value if axis == 0 else b.one(Transpose(order), value), backward)


def placed_output(b: GraphBuilder, stack: Stack, axis: int, backward: bool) -> Value:
    """The stack as an output of a scan, with the steps along another axis."""
    value = in_direction(b, stack, backward)
    rank = value.tensor_type.rank
    order = (*range(1, axis + 1), 0, *range(axis + 1, rank))
    return value if axis == 0 else b.one(Transpose(order), value)


def in_direction(b: GraphBuilder, stack: Stack, backward: bool) -> Value:
    """The stacked value with its steps in order, or `backward`."""
    if stack.backward == backward:
        return stack.value
    length, *rest = stack.value.tensor_type.shape
    none, ones = (0,) * len(rest), (1,) * len(rest)
    return b.one(Slice((length - 1, *none), (-1, *rest), (-1, *ones)), stack.value)


def repeated(b: GraphBuilder, value: Value, length: int) -> Stack:
    """The same value in every step."""
    shape: Shape = value.tensor_type.shape
    return Stack(b.one(Expand((length, *shape)), b.one(Reshape((1, *shape)), value)), False)


# ------------------------------------------------------------------------------------ a new scan
@dataclass(frozen=True)
class NewScan:
    """A scan in the making: values of an old body, and what they are outside.

    `pieces` are the values that the scan is to put together, with their axis and direction.
    """

    slices: Mapping[Value, tuple[Value, int, bool]]
    """Values of the body that become slices: of which value, along which axis, from its end?"""
    wholes: Mapping[Value, Value]
    pieces: tuple[tuple[Value, int, bool], ...]

    def apply(self, b: GraphBuilder, parts: ScanParts) -> tuple[Value, ...]:
        """The last states and the pieces put together."""
        body = parts.body
        given = (*body.inputs[: parts.op.states], *self.slices, *self.wholes)
        outputs = (*parts.state_results, *(value for value, _, _ in self.pieces))
        if not outputs:
            return ()
        scan = replace(
            parts.op,
            body=body_between(given, outputs),
            input_axes=tuple(axis for _, axis, _ in self.slices.values()),
            reverse_inputs=_directions([backward for _, _, backward in self.slices.values()]),
            output_axes=tuple(axis for _, axis, _ in self.pieces),
            reverse_outputs=_directions([backward for _, _, backward in self.pieces]),
        )
        outside = (value for value, _, _ in self.slices.values())
        return b.results(scan, *parts.values[: parts.op.states], *outside, *self.wholes.values())


def _directions(backward: Sequence[bool]) -> tuple[bool, ...]:
    """Flags as an attribute, which is empty where none is set."""
    return tuple(backward) if any(backward) else ()
