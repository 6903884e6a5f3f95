"""Steps that run bodies: the plans of the bodies, and the memory that goes in and out of them.

A body's kernels are made for arrays that lie in memory as the caller's arrays do.  What the
rest of the model keeps in another layout is copied before the loop or branch, or after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.core.dtypes import bool_
from whet.core.types import Shape
from whet.graph.graph import Graph, Node, Value
from whet.ir.program import Buffer
from whet.ops.branch import Branch
from whet.ops.loop import WhileLoop
from whet.ops.scan import Scan
from whet.ops.shared.control import Control
from whet.tasks.bodies import BodyGraph, body_graphs
from whet.tasks.flow import Address, Choose, Flow, Piece, Repeat, State, While
from whet.tasks.layout import strides_of
from whet.tasks.places import Place, Placement, Storage
from whet.tasks.steps import AnyStep, ControlStep, Plan, Step

MakePlan = Callable[[Graph], Plan]
Copy = Callable[[Place, Place, str], Step]


def control_steps(
    node: Node, placement: Placement, name: str, make_plan: MakePlan, copy: Copy
) -> list[AnyStep]:
    """The step of a node that runs bodies, and the copies around it."""
    found = _Memory(placement, name, copy)
    inner = body_graphs(node)
    plans = tuple(make_plan(body.graph) for body in inner.values())
    graphs = list(inner.values())
    match node.op:
        case Scan():
            flow: Flow = _repeat(node, node.op, graphs[0], found)
        case WhileLoop():
            flow = _while(node, node.op, graphs[0], found)
        case Branch():
            flow = _choose(node, graphs, found)
        case _:
            raise AssertionError(node.op.name)
    step = ControlStep(flow, plans, tuple(found.storages), name, (node,))
    return [*found.before, step, *found.after]


class _Memory:
    """The storages of a step under construction, each a parameter, and copies around it."""

    def __init__(self, placement: Placement, name: str, copy: Copy) -> None:
        self.placement, self.name, self.copy = placement, name, copy
        self.storages: list[Storage] = []
        self.before: list[AnyStep] = []
        self.after: list[AnyStep] = []

    def address(self, place: Place) -> Address:
        if place.storage not in self.storages:
            self.storages.append(place.storage)
        number = self.storages.index(place.storage)
        return Address(number, place.offset * place.storage.dtype.itemsize)

    def fresh(self, value: Value, axis: int | None = None) -> Place:
        """Memory of its own, in rows, with one axis as the slowest."""
        t = value.tensor_type
        rest = tuple(d for n, d in enumerate(t.shape) if n != axis)
        strides = list(strides_of(rest, None, None)[0])
        if axis is not None:
            strides.insert(axis, t.size // t.shape[axis])
        return Place(Storage("arena", t.size, t.dtype, value), tuple(strides), 0)

    def placed(self, value: Value) -> Place:
        """The place of a value; all its elements are there."""
        t, place = value.tensor_type, self.placement.places[value]
        place.storage.demand(Buffer(self.name, t.shape, t.dtype, place.strides, place.offset))
        return place

    def read(self, value: Value, axis: int | None = None) -> Place:
        """A value whose slices along the axis (or which as a whole) lie in rows."""
        place = self.placed(value)
        if _in_rows(value.tensor_type.shape, place, axis):
            return place
        near = self.fresh(value, axis)
        self.before.append(self.copy(place, near, self.name))
        return near

    def written(self, value: Value, axis: int | None = None) -> Place:
        """The same for a value that the step computes."""
        place = self.placed(value)
        if _in_rows(value.tensor_type.shape, place, axis):
            return place
        near = self.fresh(value, axis)
        self.after.append(self.copy(near, place, self.name))
        return near

    def piece(self, array: int, place: Place, axis: int, backward: bool) -> Piece:
        """Slice t along the axis."""
        stride = place.strides[axis] * place.storage.dtype.itemsize
        return Piece(array, self.address(place), stride, backward)

    def state(self, taken: int, given: int, initial: Value, final: Value) -> State:
        turns = (self.fresh(final), self.fresh(final))
        return State(
            taken,
            given,
            self.address(self.read(initial)),
            self.address(self.written(final)),
            (self.address(turns[0]), self.address(turns[1])),
            final.tensor_type.nbytes,
        )


def _in_rows(shape: Shape, place: Place, axis: int | None) -> bool:
    """Whether what is left without the axis lies in memory row by row, without gaps."""
    rest = [n for n in range(len(shape)) if n != axis]
    expected = strides_of(tuple(shape[n] for n in rest), None, None)[0]
    return all(shape[n] == 1 or place.strides[n] == e for n, e in zip(rest, expected))


def _repeat(node: Node, op: Scan, body: BodyGraph, found: _Memory) -> Repeat:
    states: list[State] = []
    pieces: list[Piece] = []
    outputs = len(body.taken)
    for array, number in enumerate(body.taken):
        value = node.inputs[number]
        if number < op.states:
            states.append(found.state(array, outputs + number, value, node.results[number]))
        elif number < op.first_whole:
            axis = op.input_axes[number - op.states]
            backward = op.backward_inputs[number - op.states]
            pieces.append(found.piece(array, found.read(value, axis), axis, backward))
        else:
            pieces.append(Piece(array, found.address(found.read(value))))
    for n, axis in enumerate(op.output_axes):
        place = found.written(node.results[op.states + n], axis)
        backward = op.backward_outputs[n]
        pieces.append(found.piece(outputs + op.states + n, place, axis, backward))
    return Repeat(op.length, tuple(states), tuple(pieces))


def _while(node: Node, op: WhileLoop, body: BodyGraph, found: _Memory) -> While:
    outputs = len(body.taken)
    given = node.inputs[op.unseen :]
    states = tuple(
        found.state(array, outputs + 1 + number, given[number], node.results[number])
        for array, number in enumerate(body.taken)
        if number < op.states
    )
    pieces = tuple(
        Piece(array, found.address(found.read(given[number])))
        for array, number in enumerate(body.taken)
        if number >= op.states
    )
    flag = Place(Storage("arena", 1, bool_, node.results[0]), (), 0)
    going, following = found.address(found.read(node.inputs[0])), found.address(flag)
    status = Address(len(found.storages))  # behind all others
    return While(going, outputs, following, status, states, pieces)


def _choose(node: Node, graphs: Sequence[BodyGraph], found: _Memory) -> Choose:
    assert isinstance(node.op, Control)
    given = node.inputs[node.op.unseen :]
    results = [found.address(found.written(v)) for v in node.results]
    read = {n: found.address(found.read(given[n])) for g in graphs for n in g.taken}
    then, other = (
        tuple(Piece(array, read[number]) for array, number in enumerate(g.taken))
        + tuple(Piece(len(g.taken) + n, address) for n, address in enumerate(results))
        for g in graphs
    )
    return Choose(found.address(found.read(node.inputs[0])), (then, other))
