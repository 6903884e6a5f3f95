"""Recurrences: what does not depend on the state is computed for all steps at once."""

from __future__ import annotations

from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Node, Value
from whet.graph.passes.simplify import SimplifyingBuilder
from whet.graph.passes.steps.frontier import find_frontier, find_sunk, leaving_outputs
from whet.graph.passes.steps.kinds import sort_values
from whet.graph.passes.steps.known import without_known_states
from whet.graph.passes.steps.outside import Outside
from whet.graph.passes.steps.scans import NewScan, ScanParts, Stack, placed_output, repeated
from whet.graph.rewrite import body_graph, rebuild
from whet.ops.base import Numeric
from whet.ops.scan import Scan


def lift_steps(graph: Graph, numerics: Numeric = "real") -> Graph:
    """The graph with work moved out of the bodies of scans.

        scan(body: h, x_t -> tanh(x_t @ w + h @ u))
        ->  scan(body: h, z_t -> tanh(z_t + h @ u)) over z = x @ w

    Cases: (1) a state that is known in every step, such as a counter, becomes a slice of a
    constant; (2) what is the same in all steps is computed once; (3) products of slices with a
    larger matrix are one product before the scan; (4) results of steps that can be had without the
    scan leave it, as do products that feed no state, with what is computed from them: these run
    behind the scan; (5) a scan of which nothing is left is gone.

    With other numerics than `real`, nothing that adds floating-point numbers is moved, because
    larger kernels may add in another order.
    """
    if not any(_is_scan(node) for node in graph.nodes):
        return graph

    def step(b: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if not isinstance(node.op, Scan) or not node.op.is_kept:
            return None
        parts = ScanParts(node.op, body_graph(node.op.body), inputs)
        known = without_known_states(b, parts)
        results = _lifted(b, known.parts, numerics)
        if results is None:
            if not known.last:
                return None
            results = b.results(known.parts.op, *known.parts.values)
        left = iter(results)
        return tuple(known.last[n] if n in known.last else next(left)
                     for n in range(len(node.results)))  # fmt: skip

    return rebuild(graph, step, SimplifyingBuilder(numerics))


def _is_scan(node: Node) -> bool:
    return isinstance(node.op, Scan) and node.op.is_kept


def _lifted(b: GraphBuilder, parts: ScanParts, numerics: Numeric) -> tuple[Value, ...] | None:
    """The results of the scan with work moved out of it; None if there is nothing to move."""
    kinds, op = sort_values(parts, numerics), parts.op
    sunk = find_sunk(kinds)
    behind = {r for node in sunk.nodes for r in node.results}
    ports = list(zip(parts.piece_results, op.output_axes, op.backward_outputs, strict=True))
    depend = [v for v, _, _ in ports if not kinds.is_whole(v) and not kinds.is_stepped(v)]
    roots = (*parts.state_results, *sunk.cut, *(v for v in depend if v not in behind))
    leaving = behind | leaving_outputs(kinds, parts.piece_results, roots)
    leaves = [v in leaving for v, _, _ in ports]
    kept = [port for port, gone in zip(ports, leaves) if not gone]
    stacked = {v for v, axis, _ in kept if axis == 0}
    backward = next((r for v, _, r in ports if v in behind), False)
    added = [(v, 0, backward) for v in sunk.cut if v not in stacked]
    pieces = (*kept, *added)
    frontier = find_frontier(kinds, (*parts.state_results, *(v for v, _, _ in pieces)))
    same = parts.slices.keys() >= set(frontier.slices) and parts.wholes.keys() >= set(
        frontier.wholes
    )
    if same and not any(leaves):
        return None

    outside = Outside(b, kinds, {**kinds.lifted, **sunk.nodes})
    outside.build((*frontier.slices, *frontier.wholes))
    slices = {}
    for value in frontier.slices:
        if value in parts.slices:
            at = parts.slices[value]
            number = at - op.states
            slices[value] = (parts.values[at], op.input_axes[number], op.backward_inputs[number])
        else:
            found = outside.stack(value)
            slices[value] = (found.value, 0, found.backward)
    wholes = {v: outside.whole(v) for v in frontier.wholes}
    results = NewScan(slices, wholes, pieces).apply(b, parts)
    states, given = results[: op.states], results[op.states :]
    for (value, axis, direction), result in zip(pieces, given, strict=True):
        if axis == 0:
            outside.stacks[value] = Stack(result, direction)
    outside.build(v for (v, _, _), gone in zip(ports, leaves) if gone)
    left = iter(given)

    def output(value: Value, axis: int, direction: bool, gone: bool) -> Value:
        if not gone:
            return next(left)
        if kinds.is_whole(value):
            found = repeated(b, outside.whole(value), op.length)
        else:
            found = outside.stack(value)
        return placed_output(b, found, axis, direction)

    return (*states, *(output(*port, gone) for port, gone in zip(ports, leaves)))
