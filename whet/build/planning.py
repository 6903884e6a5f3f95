"""Which parts of a graph become native code, and the steps that each part consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from whet.build.control import ControlStep
from whet.build.edges import join_edges
from whet.build.kernels import KernelMaker
from whet.build.plan import AnyStep, Plan, Step, make_plan
from whet.build.refusals import why_not_native
from whet.build.segments import NativePiece, Piece, cut
from whet.build.split import split_stages
from whet.core.errors import NoCodeError
from whet.graph.graph import Graph, Node


def plan_graph(
    graph: Graph, maker: KernelMaker
) -> tuple[tuple[Piece, ...], dict[NativePiece, Plan], dict[Node, str]]:
    """The pieces of the graph, the plans of the native ones, and why nodes run on their own."""
    reasons = {n: r for n in graph.nodes for r in [why_not_native(n)] if r is not None}
    pieces, plans, refused = plan_pieces(graph, reasons, maker)
    while refused:
        # What has no code runs on its own, and what is around it is planned anew.
        reasons |= refused
        pieces, plans, refused = plan_pieces(graph, reasons, maker)
    return pieces, plans, reasons


def plan_pieces(
    graph: Graph, reasons: Mapping[Node, str], maker: KernelMaker
) -> tuple[tuple[Piece, ...], dict[NativePiece, Plan], dict[Node, str]]:
    """The pieces of the graph, the plans of the native ones, and nodes without code."""
    pieces = cut(graph, lambda node: node not in reasons)
    plans: dict[NativePiece, Plan] = {}
    refused: dict[Node, str] = {}
    for piece in pieces:
        if not isinstance(piece, NativePiece):
            continue
        plan = make_plan(piece.graph, maker.prices)
        steps: list[AnyStep] = []
        for step in join_edges(plan.steps, maker.prices):
            try:
                steps += possible_steps(step, maker)
            except NoCodeError as error:
                if not step.nodes:
                    raise
                refused.update({piece.origin[n]: error.message for n in step.nodes})
        plans[piece] = replace(plan, steps=tuple(steps))
    return pieces, plans, refused


def possible_steps(step: AnyStep, maker: KernelMaker) -> list[AnyStep]:
    """The step if it has a kernel, else its stages one by one; NoCodeError if these have none."""
    if isinstance(step, ControlStep):
        return [replace(step, bodies=tuple(_possible_plan(p, maker) for p in step.bodies))]
    try:
        maker.make(step)
        return [step]
    except NoCodeError:
        parts = split_stages(step) if isinstance(step, Step) else []
        if len(parts) < 2:
            raise
    for part in parts:
        maker.make(part)
    return [*parts]


def _possible_plan(plan: Plan, maker: KernelMaker) -> Plan:
    """The plan of a body with steps that all have kernels."""
    joined = join_edges(plan.steps, maker.prices)
    return replace(plan, steps=tuple(s for step in joined for s in possible_steps(step, maker)))
