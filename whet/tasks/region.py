"""Regions of a planned graph: a rewrite is priced by what it changes.

    plan of the whole graph, nodes to be replaced
        ->   region: these nodes and the kernels around them, a small graph over outer values
        ->   rewritten region, planned with its edges where they lie in the whole plan

Groups depend on neighbours alone and edges keep their places, so the plan of an unchanged region is
that part of the whole plan.  Conversions at the model's own edges belong to no region.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from whet.core.collecting import without_collection
from whet.graph.graph import Node, Result, Value
from whet.tasks.dag import Region
from whet.tasks.division_places import place_parts
from whet.tasks.layout import ChooseLayouts, Layouts, choose_layouts, strides_of
from whet.tasks.places import Place, Storage
from whet.tasks.price import ORIGINS, Estimate, Price
from whet.tasks.segment_plan import grouped_steps
from whet.tasks.steps import AnyStep, Plan, Step, inner_steps
from whet.tasks.task import wider_border


@dataclass(frozen=True, eq=False)
class Cut:
    """A region of a plan: its nodes as a graph over outer values, its steps, where values lie."""

    region: Region
    steps: tuple[AnyStep, ...]
    places: Mapping[Value, Place]


def cut_around(plan: Plan, nodes: Collection[Node]) -> Cut:
    """The region of these nodes and of all kernels that pass values to them or read theirs."""
    inside = _neighbourhood(plan, nodes)
    chosen = sorted(inside, key=plan.position.__getitem__)
    taken = dict.fromkeys(
        v for node in chosen for v in node.inputs
        if not (isinstance(v, Result) and v.node in inside)
    )  # fmt: skip
    wanted = set(plan.graph.outputs)
    given = tuple(
        v for node in chosen for v in node.results
        if v in wanted or any(user not in inside for user in plan.graph.users.get(v, ()))
    )  # fmt: skip
    steps = tuple(dict.fromkeys(s for node in chosen for s in plan.steps_of.get(node, ())))
    region = Region(tuple(taken), given, plan.graph.names)
    values = (*taken, *(v for node in chosen for v in node.results))
    places = plan.placement.places
    return Cut(region, steps, {v: places[v] for v in values if v in places})


def plan_region(
    region: Region,
    places: Mapping[Value, Place],
    price: Price,
    layouts: ChooseLayouts = choose_layouts,
) -> list[AnyStep]:
    """The steps of a region whose known values stay at their places.

    They get the zeros around them that readers in the region want, as they would in the plan of the
    whole graph.
    """
    chosen = _layouts_around(region, places, layouts)
    known = {**places, **_with_wider_borders(places, chosen)}
    placement, _ = place_parts(region, chosen, price, known)
    return grouped_steps(region, placement, price, layouts)[0]


def difference(cut: Cut, rewritten: Region, price: Price) -> float:
    """Seconds that the rewritten region takes longer than the region that it replaces.

    It has the same inputs, and its outputs take the places of those of the region in order.
    """
    places = {v: p for v, p in cut.places.items() if v not in cut.region.outputs}
    places |= {new: cut.places[v] for v, new in zip(cut.region.outputs, rewritten.outputs)}
    with without_collection():
        steps = plan_region(rewritten, places, price)
        return steps_seconds(steps, price) - steps_seconds(cut.steps, price)


def _with_wider_borders(places: Mapping[Value, Place], layouts: Layouts) -> dict[Value, Place]:
    """Places of values with the zeros that readers in the region want around them.

    The plan of the whole graph would give them these: to the model's own memory, that is, and
    where a value has it to itself.
    """
    found: dict[Value, Place] = {}
    for v, border in layouts.border.items():
        place = places.get(v)
        if place is None or place.storage.kind != "arena":
            continue
        wider, shape = wider_border(place.border, border), v.tensor_type.shape
        inner = _contiguous_axis(v, place)
        alone = strides_of(shape, inner, place.border)
        if wider != place.border and alone == (place.strides, place.offset, place.storage.size):
            strides, offset, size = strides_of(shape, inner, wider)
            found[v] = Place(Storage("arena", size, place.storage.dtype, v), strides, offset, wider)
    return found


def steps_seconds(steps: Collection[AnyStep], price: Price) -> float:
    """The time of steps one after the other; loop programs of operators have no price."""
    return sum(times * found.seconds for found, times in _priced(steps, price))


def steps_estimate(steps: Collection[AnyStep], price: Price) -> Estimate:
    """The same with its error, and with the origin that can be trusted least.

    Errors add up: what is wrong about one kernel is wrong about those like it.
    """
    found = list(_priced(steps, price))
    seconds = sum(times * e.seconds for e, times in found)
    error = sum(times * e.seconds * e.error for e, times in found)
    origin = max((e.origin for e, _ in found), key=ORIGINS.index, default=ORIGINS[0])
    return Estimate(seconds, origin, error / seconds if seconds else 0.0)


def _priced(steps: Collection[AnyStep], price: Price) -> Iterator[tuple[Estimate, int]]:
    """The prices of kernels and how often each runs."""
    for step in steps:
        for inner, times in inner_steps(step):
            found = price(inner.task) if isinstance(inner, Step) else None
            if found is not None:
                yield found, times


def _neighbourhood(plan: Plan, nodes: Collection[Node]) -> set[Node]:
    """The nodes, those of all kernels next to them, and whatever lies between these."""
    users = plan.graph.users

    def whole(found: Collection[Node]) -> set[Node]:
        others = {n for node in found for step in plan.steps_of.get(node, ()) for n in step.nodes}
        return others | set(found)

    inside = whole(nodes)
    around = {v.node for node in inside for v in node.inputs if isinstance(v, Result)}
    around |= {user for node in inside for v in node.results for user in users.get(v, ())}
    inside |= whole(around)
    while between := _between(plan, inside):
        inside |= whole(between)
    return inside


def _between(plan: Plan, inside: set[Node]) -> set[Node]:
    """The nodes on ways that leave the set and come back: a region must not need its own results
    through others."""
    ends = [plan.position[node] for node in inside]
    span = plan.graph.nodes[min(ends) : max(ends) + 1]
    after: set[Node] = set()
    for node in span:
        if node not in inside and any(
            isinstance(v, Result) and (v.node in inside or v.node in after) for v in node.inputs
        ):
            after.add(node)
    back: set[Node] = set()
    for node in reversed(span):
        if node in after and any(
            user in inside or user in back
            for v in node.results
            for user in plan.graph.users.get(v, ())
        ):
            back.add(node)
    return back


def _layouts_around(
    region: Region, places: Mapping[Value, Place], choose: ChooseLayouts
) -> Layouts:
    return choose(region, {v: _contiguous_axis(v, place) for v, place in places.items()})


def _contiguous_axis(v: Value, place: Place) -> int:
    """The axis along which neighbours lie side by side; the last where there is none."""
    shape = v.tensor_type.shape
    found = [n for n, (d, s) in enumerate(zip(shape, place.strides)) if s == 1 and d > 1]
    return found[-1] if found else len(shape) - 1
