"""The plan of a graph: which parts become native code, and the steps that each part consists of.

Nothing is generated here: whether a task can be computed, and what that costs, is asked of a
`Price`, and whether an element type exists on the target of `holds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from whet.core.collecting import without_collection
from whet.core.dtypes import DType
from whet.core.types import TensorType
from whet.graph.graph import Graph, Node
from whet.ir.tensor import describe
from whet.tasks.bodies import body_graphs
from whet.tasks.edges import join_edges
from whet.tasks.layout import ChooseLayouts, choose_layouts
from whet.tasks.moves import join_moves
from whet.tasks.pieces import NativePiece, Piece, cut
from whet.tasks.price import Price
from whet.tasks.segment_plan import plan_segment
from whet.tasks.split import split_stages
from whet.tasks.steps import AnyStep, ControlStep, Plan, Step

Holds = Callable[[DType], bool]
"""Says whether code for the target can hold elements of a type."""


@dataclass(frozen=True, eq=False)
class GraphPlan:
    """The pieces of a graph, the plans of the native ones, and why nodes run on their own."""

    pieces: tuple[Piece, ...]
    plans: Mapping[NativePiece, Plan]
    reasons: Mapping[Node, str]


def plan_graph(
    graph: Graph, price: Price, holds: Holds, layouts: ChooseLayouts = choose_layouts
) -> GraphPlan:
    """The plan of a graph; what no sketch computes runs on its own, and what is around it is
    planned anew."""
    with without_collection():
        return _planned(graph, price, holds, layouts)


def _planned(graph: Graph, price: Price, holds: Holds, layouts: ChooseLayouts) -> GraphPlan:
    found = {n: why_not_native(n, holds, controls=price.controls) for n in graph.nodes}
    reasons = {n: reason for n, reason in found.items() if reason is not None}
    while True:
        plan = _with_alone(graph, reasons, price, layouts)
        if len(plan.reasons) == len(reasons):
            return plan
        reasons = dict(plan.reasons)


def _with_alone(
    graph: Graph, reasons: Mapping[Node, str], price: Price, layouts: ChooseLayouts
) -> GraphPlan:
    """The plan in which these nodes run on their own, and what it turns out no sketch fits."""
    pieces = cut(graph, lambda node: node not in reasons)
    plans: dict[NativePiece, Plan] = {}
    refused: dict[Node, str] = {}
    for piece in pieces:
        if isinstance(piece, NativePiece):
            made = plan_segment(piece.graph, price, layouts)
            plans[piece], unfit = with_kernels(made, price)
            refused |= {piece.origin[n]: reason for n, reason in unfit.items()}
    return GraphPlan(pieces, plans, {**reasons, **refused})


def with_kernels(plan: Plan, price: Price) -> tuple[Plan, dict[Node, str]]:
    """The plan with conversions joined to what they convert for, and with stages one by one where
    no sketch fits them together; and the nodes that no sketch fits at all."""
    steps: list[AnyStep] = []
    unfit: dict[Node, str] = {}
    for step in join_moves(join_edges(plan.steps, price), price):
        if isinstance(step, ControlStep):
            inner = [with_kernels(body, price) for body in step.bodies]
            step = replace(step, bodies=tuple(body for body, _ in inner))
            if any(missing for _, missing in inner):
                reason = next(iter(r for _, missing in inner for r in missing.values()))
                unfit |= dict.fromkeys(step.nodes, reason)
        elif isinstance(step, Step) and price(step.task) is None:
            parts = split_stages(step)
            if len(parts) < 2 or any(price(part.task) is None for part in parts):
                reason = f"no sketch fits {describe(*step.task.outputs)}"
                assert step.nodes, reason
                unfit |= dict.fromkeys(step.nodes, reason)
            steps += parts
            continue
        steps.append(step)
    return replace(plan, steps=tuple(steps)), unfit


def why_not_native(node: Node, holds: Holds, *, controls: bool = True) -> str | None:
    """Why a node cannot be part of a native segment, or None if it can."""
    inner = body_graphs(node)
    if node.op.host:
        note = ", and its body is compiled on its own" if inner else ""
        return f"the shape of its result depends on data{note}"
    if inner and not controls:
        return "its body is compiled on its own"
    for body in inner.values():
        for part in body.graph.nodes:
            reason = why_not_native(part, holds)
            if reason is not None:
                return f"its body is compiled on its own, because of {part.op.name}: {reason}"
    if node.op.compute is None and node.op.program is None and not inner:
        return "it has neither tensor expressions nor loops"
    for t in (v.type for v in (*node.inputs, *node.results)):
        if not holds(t.dtype):
            return f"the type {t.dtype} only stores"
        if isinstance(t, TensorType) and t.size == 0:
            return "a tensor without elements"
    return None
