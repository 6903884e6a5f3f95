"""The plan of a segment: which kernels run in which order on which memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from whet.core.dtypes import u8
from whet.graph.graph import Constant, Graph, Node, Value
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Placeholder, Tensor, compute
from whet.ops.shared.control import Control
from whet.tasks.control import control_steps
from whet.tasks.dag import Dag
from whet.tasks.group_stages import KNOWN, group_parts, row_axes
from whet.tasks.groups import Group, reduces
from whet.tasks.layout import ChooseLayouts, choose_layouts
from whet.tasks.loops import bound_program
from whet.tasks.partition import partition
from whet.tasks.placement import place_values
from whet.tasks.places import Place, Placement, Storage
from whet.tasks.price import Price
from whet.tasks.steps import AnyStep, LoopStep, Plan, Step
from whet.tasks.task import Border, Task
from whet.tasks.wiring import wiring_of


def plan_segment(graph: Graph, price: Price, layouts: ChooseLayouts = choose_layouts) -> Plan:
    """The plan of a graph whose operators all have tensor expressions or loop programs."""
    placement = place_values(graph, layouts(graph, {}))
    steps, others = grouped_steps(graph, placement, price, layouts)
    arriving = [
        _copy_step(placement.arriving[v], placement.places[v], "input")
        for v in placement.arriving
        if v.tensor_type.size
    ]
    leaving = [
        _copy_step(placement.places[graph.outputs[n]], place, "output")
        for n, place in placement.leaving.items()
        if place.storage.size
    ]
    return Plan(graph, (*arriving, *steps, *leaving), placement, tuple(others))


def grouped_steps(
    graph: Dag, placement: Placement, price: Price, layouts: ChooseLayouts = choose_layouts
) -> tuple[list[AnyStep], list[Step]]:
    """The steps of all groups of nodes, and those of other groups that are expected to be slower.

    What becomes a group, and its steps, depends on its neighbours alone.  `layouts` are chosen for
    the bodies of nodes that have any.
    """
    others: list[Step] = []

    def keep_rows(chain: Sequence[Group]) -> bool:
        kinds = tuple("product" if group.heavy else "rows" for group in chain)
        if "product" in kinds and not price.joins(kinds):
            return False
        pair = _rows_kept(graph, placement, chain)
        if pair is None:
            return False
        together, apart = pair
        if price(together.task) is None:
            return False
        between = sum(v.tensor_type.nbytes for group in chain[:-1] for v in group.outputs(graph))
        chosen = price.prefers(together.task, [s.task for s in apart], between)
        others.extend(apart if chosen else [together])
        return chosen

    groups = partition(
        graph, placement.views, lambda a, b: _share_rows(graph, placement, a, b), keep_rows
    )
    steps: list[AnyStep] = []
    for group in groups:
        first = group.nodes[0]
        if isinstance(first.op, Control):
            name = graph.names.get(first, first.op.name)
            inner = lambda body: plan_segment(body, price, layouts)
            steps += control_steps(first, placement, name, inner, _copy_step)
        else:
            steps += group_steps(graph, group, placement)
    return steps, others


def group_steps(graph: Dag, group: Group, placement: Placement) -> list[AnyStep]:
    """The steps of a group: one, or one for every phase of its only stage."""
    name = graph.names.get(group.nodes[0], group.nodes[0].op.name)
    nodes = tuple(group.nodes)
    if group.opaque:
        return [_loop_step(group.nodes[0], placement, name)]
    outputs = group.outputs(graph)
    wiring, values = wiring_of(group.nodes, outputs)
    places = [placement.places[v] for v in outputs]
    steps: list[AnyStep] = []
    for part in group_parts(wiring):
        targets = [places[0].every(part.starts, part.steps)] if part.steps else places
        read = {t: values[n] for t, n in part.sources}
        steps.append(Step(*make_task(part.outputs, read, targets, placement), name, nodes))
    return steps


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


def _copy_step(source: Place, target: Place, name: str) -> Step:
    """A step that brings a value from one place to another.

    Types without arithmetic are moved as the bytes that they are stored in.
    """
    shape = target.storage.value.tensor_type.shape
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


def _share_rows(graph: Dag, placement: Placement, first: Group, last: Group) -> bool:
    """True when the two groups together are a chain of stages along contiguous rows."""
    merged = Group(nodes=[*first.nodes, *last.nodes])
    outputs = merged.outputs(graph)
    if not outputs or not any(map(reduces, merged.nodes)):
        return False
    wiring, values = wiring_of(merged.nodes, outputs)
    found = row_axes(wiring)
    if found is None:
        return False
    rank, sources = found
    read = (*(values[n] for n in sources), *outputs)
    moving = [v for v in read if not isinstance(v, Constant)]
    full = max(v.tensor_type.rank for v in moving)
    return all(_contiguous_inside(placement, v, rank) for v in moving if v.tensor_type.rank == full)


def _rows_kept(
    graph: Dag, placement: Placement, chain: Sequence[Group]
) -> tuple[Step, list[Step]] | None:
    """One step that takes rows from group to group, and the steps that do so one after the other;
    None where no kernel can."""
    merged = Group([node for group in chain for node in group.nodes])
    if not any(map(reduces, chain[-1].nodes)):
        return None
    together = group_steps(graph, merged, placement)
    if len(together) != 1 or not isinstance(together[0], Step):
        return None
    steps = [s for group in chain for s in group_steps(graph, group, placement)]
    apart = [s for s in steps if isinstance(s, Step)]
    return (together[0], apart) if len(apart) == len(steps) else None


def _contiguous_inside(placement: Placement, v: Value, rank: int) -> bool:
    """True when the value's unit stride lies behind the row axes."""
    place = placement.places[v]
    shape = v.tensor_type.shape
    inner = [n for n, (d, s) in enumerate(zip(shape, place.strides)) if s == 1 and d > 1]
    return not inner or inner[0] >= rank or all(d == 1 for d in shape[rank:])
