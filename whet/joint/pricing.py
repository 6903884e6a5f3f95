"""Prices of graphs and parts of them, planned as they would be compiled, kernel by kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from whet.core.collecting import without_collection
from whet.graph.graph import Graph, Node, Value
from whet.graph.passes.expand_composites import ExpandingBuilder
from whet.ops.movement import Concat
from whet.superopt.apply.rewrite import Part
from whet.tasks.dag import Region
from whet.tasks.edges import join_edges
from whet.tasks.layout import ChooseLayouts, choose_layouts
from whet.tasks.moves import join_moves
from whet.tasks.pieces import NativePiece
from whet.tasks.places import Place
from whet.tasks.plan import Holds, plan_graph
from whet.tasks.price import Price
from whet.tasks.region import plan_region
from whet.tasks.split import split_stages
from whet.tasks.steps import AnyStep, Step, inner_steps


@dataclass(frozen=True, eq=False)
class Whole:
    """A graph with its plan: where its values lie, which of them leave kernels, what it takes."""

    graph: Graph
    places: Mapping[Value, Place]
    stored: frozenset[Value]
    """Values that one kernel writes and another reads."""
    seconds: float


def plan_whole(
    graph: Graph, price: Price, holds: Holds, layouts: ChooseLayouts = choose_layouts
) -> Whole | None:
    """The plan of a graph; None if parts of it are not native, or have no price."""
    outputs, known = written_out(graph.nodes, graph.outputs)
    expanded = Graph(graph.inputs, outputs, graph.output_names)
    planned = plan_graph(expanded, price, holds, layouts)
    if len(planned.pieces) != 1 or not isinstance(planned.pieces[0], NativePiece):
        return None
    (plan,) = planned.plans.values()
    seconds = steps_price(plan.steps, price)
    if not math.isfinite(seconds):
        return None
    written = {v for step in plan.steps for v in _written(step)}
    places = plan.placement.places
    now = {v: known.get(v, v) for node in graph.nodes for v in (*node.inputs, *node.results)}
    return Whole(
        graph,
        {v: places[e] for v, e in now.items() if e in places},
        frozenset(v for v, e in now.items() if e in written),
        seconds,
    )


def _written(step: AnyStep) -> Sequence[Value]:
    """The values of nodes that a step leaves in memory."""
    if not isinstance(step, Step):
        return [v for node in step.nodes for v in node.results]
    inside = set(step.nodes)
    kept = {step.storages[t] for t in step.task.outputs}
    return [v for node in inside for v in node.results if any(s.value is v for s in kept)]


def part_price(
    part: Part,
    places: Mapping[Value, Place],
    old: Part,
    price: Price,
    layouts: ChooseLayouts = choose_layouts,
) -> float:
    """Seconds of a part: what has not changed lies where it lay, and outputs take the places of
    those of the part that it replaces."""
    return steps_price(part_steps(part, places, old, price, layouts)[0], price)


def part_steps(
    part: Part,
    places: Mapping[Value, Place],
    old: Part,
    price: Price,
    layouts: ChooseLayouts = choose_layouts,
) -> tuple[Sequence[AnyStep], Mapping[Value, Value]]:
    """The kernels of such a part, and the values that were written out in simpler ones."""
    outputs, now = written_out(part.nodes, part.outputs)
    pinned = {
        now.get(v, v): place
        for v in (*part.inputs, *_kept(part, old))
        if (place := places.get(part.origin.get(v, v))) is not None
    }
    pinned |= {new: places[v] for v, new in zip(old.outputs, outputs) if v in places}
    with without_collection():
        steps = plan_region(Region(part.inputs, outputs), pinned, price, layouts)
        kept = [places[v].storage for v in old.outputs if v in places]
        return join_moves(join_edges(steps, price), price, kept), now


def _kept(part: Part, old: Part) -> Iterator[Value]:
    """Values inside the part that stay where they lay in the old one.

    Parts of a new concat do not: they may be computed right where the concat wants them.
    """
    before = {node.results for node in old.nodes}
    concats = (n for n in part.nodes if isinstance(n.op, Concat))
    moved = {v for n in concats for v in n.inputs if _origin(part, n.results) not in before}
    for node in part.nodes:
        yield from (v for v in node.results if v not in part.needed and v not in moved)


def _origin(part: Part, values: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(part.origin.get(v, v) for v in values)


def written_out(
    nodes: Sequence[Node], outputs: Sequence[Value]
) -> tuple[tuple[Value, ...], dict[Value, Value]]:
    """The outputs with composite operators written out, and what became of each value."""
    builder = ExpandingBuilder()
    now: dict[Value, Value] = {}
    for node in nodes:
        inputs = tuple(now.get(v, v) for v in node.inputs)
        same = all(a is b for a, b in zip(inputs, node.inputs))
        if same and not builder.expands(node.op):
            continue
        now.update(zip(node.results, builder.results(node.op, *inputs), strict=True))
    return tuple(now.get(v, v) for v in outputs), now


def steps_price(steps: Sequence[AnyStep], price: Price) -> float:
    """The time of steps one after the other; infinite where no sketch fits.

    A task that no sketch fits as a whole runs stage by stage.
    """
    total = 0.0
    for step in steps:
        for inner, times in inner_steps(step):
            if not isinstance(inner, Step):
                continue
            found = price(inner.task)
            if found is not None:
                total += times * found.seconds
                continue
            parts = [price(p.task) for p in split_stages(inner)]
            if len(parts) < 2:
                return math.inf
            for part in parts:
                if part is None:
                    return math.inf
                total += times * part.seconds
    return total
