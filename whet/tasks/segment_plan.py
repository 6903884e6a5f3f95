"""The plan of a segment: which kernels run in which order on which memory."""

from __future__ import annotations

from collections.abc import Sequence

from whet.graph.graph import Constant, Graph, Value
from whet.ops.shared.control import Control
from whet.tasks.control import control_steps
from whet.tasks.dag import Dag
from whet.tasks.division_places import place_parts
from whet.tasks.group_stages import row_axes
from whet.tasks.groups import Group, reduces
from whet.tasks.kernel_steps import copy_step, group_steps, joined_step
from whet.tasks.layout import ChooseLayouts, choose_layouts
from whet.tasks.partition import partition
from whet.tasks.places import Placement
from whet.tasks.price import Price
from whet.tasks.steps import AnyStep, Plan, Step
from whet.tasks.wiring import wiring_of


def plan_segment(graph: Graph, price: Price, layouts: ChooseLayouts = choose_layouts) -> Plan:
    """The plan of a graph whose operators all have tensor expressions or loop programs."""
    placement, slower = place_parts(graph, layouts(graph, {}), price)
    steps, others = grouped_steps(graph, placement, price, layouts)
    arriving = [
        copy_step(placement.arriving[v], placement.places[v], "input")
        for v in placement.arriving
        if v.tensor_type.size
    ]
    leaving = [
        copy_step(placement.places[graph.outputs[n]], place, "output")
        for n, place in placement.leaving.items()
        if place.storage.size
    ]
    return Plan(graph, (*arriving, *steps, *leaving), placement, (*slower, *others))


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
        graph,
        placement.views,
        placement.divisions,
        lambda a, b: _share_rows(graph, placement, a, b),
        keep_rows,
    )
    steps: list[AnyStep] = []
    for group in groups:
        first = group.nodes[0]
        if isinstance(first.op, Control):
            name = graph.names.get(first, first.op.name)
            inner = lambda body: plan_segment(body, price, layouts)
            steps += control_steps(first, placement, name, inner, copy_step)
        else:
            chosen, slower = _together_or_apart(graph, group, placement, price)
            steps += chosen
            others += slower
    return steps, others


def _together_or_apart(
    graph: Dag, group: Group, placement: Placement, price: Price
) -> tuple[list[AnyStep], list[Step]]:
    """The steps of a group, and those of the other way to compute it: its phases one by one, or
    all of them as one kernel."""
    apart = group_steps(graph, group, placement)
    phases = [s for s in apart if isinstance(s, Step)]
    if len(phases) < 2 or not price.joins(("phase", "phase")):
        return apart, []
    together = joined_step(graph, group, placement)
    if together is None:
        return apart, []
    if price.prefers(together.task, [s.task for s in phases], 0):
        return [together], phases
    return apart, [together]


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
