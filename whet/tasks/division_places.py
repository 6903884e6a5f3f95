"""Places of the parts of contractions: each in memory of its own, or all in one, as is cheaper.

    y = conv(x, w);  a, b = split(y);  c = relu(a + p);  d = b * q

One kernel that stores c and d (`divisions`) is compared with one that stores y, of which a and b
are views, and those that compute c and d of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from whet.graph.graph import Node, Value
from whet.tasks.dag import Dag
from whet.tasks.divisions import Division, find_divisions
from whet.tasks.groups import Group
from whet.tasks.kernel_steps import copy_step, group_steps
from whet.tasks.layout import Layouts
from whet.tasks.placement import place_values
from whet.tasks.places import Place, Placement
from whet.tasks.price import Price
from whet.tasks.runs import with_whole_runs
from whet.tasks.steps import Step
from whet.tasks.stride_views import joined_parts, view
from whet.tasks.structure import in_place, structure_of


def place_parts(
    graph: Dag, layouts: Layouts, price: Price, pinned: Mapping[Value, Place] | None = None
) -> tuple[Placement, list[Step]]:
    """The places of all values, with the divisions that pay; and the steps of the other way, which
    are expected to be slower."""
    pinned = pinned or {}
    layouts = with_whole_runs(graph, layouts, price.run)
    found = [d for d in find_divisions(graph) if _may_pay(graph, layouts, d, pinned)]
    placement = place_values(graph, layouts, pinned, tuple(found))
    kept: list[Division] = []
    others: list[Step] = []
    for division in found:
        pair = _both_ways(graph, layouts, placement, division, pinned)
        if pair is None or price(pair[0].task) is None:
            continue
        together, first, after = pair
        tasks = [step.task for step in (first, *after)]
        between = sum(step.task.inputs[0].type.nbytes for step in after)
        if _is_placed(division, pinned) or price.prefers(together.task, tasks, between):
            kept.append(division)
            others += [first, *after]
        else:
            others.append(together)
    if len(kept) < len(found):
        placement = place_values(graph, layouts, pinned, tuple(kept))
    return placement, others


def _is_placed(division: Division, pinned: Mapping[Value, Place]) -> bool:
    """Whether it is known where the whole and its parts lie."""
    return all(v in pinned for v in (*division.split.inputs, *division.split.results))


def _may_pay(
    graph: Dag, layouts: Layouts, division: Division, pinned: Mapping[Value, Place]
) -> bool:
    """Whether some part is not just read where it lies in the whole."""
    (whole,), parts = division.split.inputs, division.split.results
    if _is_placed(division, pinned):
        return any(pinned[v].storage is not pinned[whole].storage for v in parts)
    alone = (_needs_kernel(graph, layouts, *pair, pinned) for pair in zip(parts, division.tails))
    return bool(division.joint) or any(alone)


def _needs_kernel(
    graph: Dag,
    layouts: Layouts,
    part: Value,
    tail: Sequence[Node],
    pinned: Mapping[Value, Place],
) -> bool:
    """Whether a part that is a view needs a kernel of its own, for what follows it or a copy.

    None is needed where element-wise nodes read it that are a kernel anyway.
    """
    if tail:
        last = tail[-1].results[0]
        shape = last.tensor_type.shape
        return not any(in_place(node, {last}, shape) for node in graph.users.get(last, ()))
    readers = (structure_of(node) for node in graph.users.get(part, ()))
    has_place = part in layouts.border or part in pinned
    return has_place or any(s is not None and joined_parts(s) for s in readers)


def _both_ways(
    graph: Dag,
    layouts: Layouts,
    placement: Placement,
    division: Division,
    pinned: Mapping[Value, Place],
) -> tuple[Step, Step, list[Step]] | None:
    """One step for all of a division; and one for its head, with those that parts then need.

    None where these are no single kernels.
    """
    (whole,), parts = division.split.inputs, division.split.results
    seen = [view(division.split, 0, placement.places[whole], part) for part in parts]
    if any(place is None for place in seen):
        return None
    views: dict[Value, Place] = {p: place for p, place in zip(parts, seen) if place is not None}
    apart = replace(placement, places={**placement.places, **views})
    steps = [
        *group_steps(graph, Group(list(division.nodes)), placement),
        *group_steps(graph, Group(list(division.head)), apart),
    ]
    after = [
        group_steps(graph, Group(list(tail)), apart)
        if tail
        else [copy_step(views[part], placement.places[part], "part", part.tensor_type.shape)]
        for part, tail in zip(parts, division.tails)
        if _needs_kernel(graph, layouts, part, tail, pinned)
    ]
    if division.joint:
        after = [group_steps(graph, Group(list(division.joint)), apart)]
    kernels = [*steps, *(step for some in after for step in some)]
    known = [step for step in kernels if isinstance(step, Step)]
    if len(steps) != 2 or len(known) < len(kernels):
        return None
    return known[0], known[1], known[2:]
