"""Steps of groups, and copies: tasks over the places of the values that they read and write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from whet.core.dtypes import u8
from whet.core.types import Shape
from whet.graph.graph import Constant, Node, Value
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Placeholder, Tensor, compute
from whet.tasks.dag import Dag
from whet.tasks.group_stages import KNOWN, Part, group_parts, joined_part
from whet.tasks.groups import Group
from whet.tasks.loops import bound_program
from whet.tasks.places import Place, Placement, Storage
from whet.tasks.steps import AnyStep, LoopStep, Step
from whet.tasks.task import Border, Task
from whet.tasks.wiring import wiring_of


def group_steps(graph: Dag, group: Group, placement: Placement) -> list[AnyStep]:
    """The steps of a group: one, or one for every phase of its only stage."""
    name = graph.names.get(group.nodes[0], group.nodes[0].op.name)
    nodes = tuple(group.nodes)
    if group.opaque:
        return [_loop_step(group.nodes[0], placement, name)]
    outputs = group.outputs(graph)
    wiring, values = wiring_of(group.nodes, outputs)
    return [
        _part_step(part, values, outputs, placement, name, nodes) for part in group_parts(wiring)
    ]


def joined_step(graph: Dag, group: Group, placement: Placement) -> Step | None:
    """One step for all phases of a group's only stage; None where they do not go together."""
    outputs = group.outputs(graph)
    wiring, values = wiring_of(group.nodes, outputs)
    part = joined_part(wiring)
    if part is None:
        return None
    name = graph.names.get(group.nodes[0], group.nodes[0].op.name)
    return _part_step(part, values, outputs, placement, name, tuple(group.nodes))


def _part_step(
    part: Part, values: Sequence[Value], outputs: Sequence[Value], placement: Placement,
    name: str, nodes: tuple[Node, ...],
) -> Step:  # fmt: skip
    places = [placement.places[v] for v in outputs]
    targets = [places[0].every(part.starts, part.steps, part.along)] if part.steps else places
    read: dict[Tensor, Value] = {t: values[n] for t, n in part.sources}
    return Step(*make_task(part.outputs, read, targets, placement), name, nodes)


def _loop_step(node: Node, placement: Placement, name: str) -> LoopStep:
    assert node.op.program is not None, node.op.name
    program = node.op.program(*(v.tensor_type for v in node.inputs))
    places = [placement.places[v] for v in (*node.inputs, *node.results)]
    bound = bound_program(program, [(p.strides, p.offset) for p in places])
    return LoopStep(bound, tuple(p.storage for p in places), name, (node,))


def make_task(
    made: Sequence[Compute],
    values: dict[Tensor, Value],
    targets: Sequence[Place],
    placement: Placement,
) -> tuple[Task, dict[Tensor, Storage]]:
    """The task over the places of its boundary values."""
    places: dict[Tensor, Place] = {t: placement.places[v] for t, v in values.items()}
    places.update(zip(made, targets))
    buffers: dict[Tensor, Buffer] = {}
    borders = {}
    for tensor, place in places.items():
        buffers[tensor] = Buffer(
            tensor.name, tensor.shape, tensor.dtype, place.strides, place.offset
        )
        if place.border is not None:
            borders[tensor] = place.border
    constants = frozenset(t for t, v in values.items() if isinstance(v, Constant))
    given = frozenset(t for t in values if places[t].storage.kind == "input")
    storages = {t: p.storage for t, p in places.items()}
    around = tuple(borders.items())
    return _task(tuple(made), tuple(buffers.items()), constants, around, given), storages


@lru_cache(maxsize=KNOWN)
def _task(
    made: tuple[Compute, ...],
    buffers: tuple[tuple[Tensor, Buffer], ...],
    constants: frozenset[Tensor],
    borders: tuple[tuple[Tensor, Border], ...],
    given: frozenset[Tensor],
) -> Task:
    """The one task of these fields: what is known about a task is found out once."""
    return Task(made, dict(buffers), constants, dict(borders), given)


def copy_step(source: Place, target: Place, name: str, shape: Shape | None = None) -> Step:
    """A step that brings a value from one place to another, which it has to itself or, if a shape
    is given, shares with others.

    Types without arithmetic are moved as the bytes that they are stored in.
    """
    shape = target.storage.value.tensor_type.shape if shape is None else shape
    dtype = u8 if target.storage.dtype.is_storage_only else target.storage.dtype
    x = Placeholder("x0", shape, dtype)
    y = compute(shape, lambda *i: x[i], "s0")
    buffers: dict[Tensor, Buffer] = {
        x: Buffer("x0", shape, dtype, source.strides, source.offset),
        y: Buffer("s0", shape, dtype, target.strides, target.offset),
    }
    given = frozenset({x}) if source.storage.kind == "input" else frozenset[Tensor]()
    task = Task((y,), buffers, frozenset(), {}, given)
    return Step(task, {x: source.storage, y: target.storage}, name)
