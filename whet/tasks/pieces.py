"""A graph cut into pieces: native segments, and nodes that run on their own between them.

x -> conv -> relu -> nonzero -> gather -> y     (nonzero runs on its own)
    ->   [conv, relu]   nonzero   [gather]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whet.graph.graph import Constant, Graph, Input, Node, Result, Value, apply


@dataclass(frozen=True, eq=False)
class NativePiece:
    """Nodes that become one native segment, as a graph of their own.

    `inputs` and `outputs` are the values of the whole graph that the piece takes and gives;
    `origin` finds the whole graph's node behind a node of the piece.
    """

    graph: Graph
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: dict[Node, Node]


@dataclass(frozen=True, eq=False)
class LonePiece:
    """A node that runs on its own."""

    node: Node


Piece = NativePiece | LonePiece


def cut(graph: Graph, is_native: Callable[[Node], bool]) -> tuple[Piece, ...]:
    """The pieces in an order in which they can run.

    A native node belongs to the segment after the last lone node that it needs, so there are
    as many segments as lone nodes follow each other on a path, plus one.
    """
    depth: dict[Value, int] = {}
    native: dict[int, list[Node]] = {}
    lone: dict[int, list[Node]] = {}
    for node in graph.nodes:
        at = max((depth.get(v, 0) for v in node.inputs), default=0)
        runs_alone = not is_native(node)
        (lone if runs_alone else native).setdefault(at, []).append(node)
        depth.update(dict.fromkeys(node.results, at + runs_alone))
    if not lone:
        return (_whole(graph),)
    pieces: list[Piece] = []
    for at in range(max([*native, *lone], default=-1) + 1):
        if at in native:
            pieces.append(_piece(graph, native[at]))
        pieces += [LonePiece(node) for node in lone.get(at, ())]
    return tuple(pieces)


def _whole(graph: Graph) -> NativePiece:
    return NativePiece(graph, graph.inputs, graph.outputs, {n: n for n in graph.nodes})


def _piece(graph: Graph, nodes: list[Node]) -> NativePiece:
    inside = set(nodes)
    taken = dict.fromkeys(
        v for node in nodes for v in node.inputs
        if not isinstance(v, Constant) and not (isinstance(v, Result) and v.node in inside)
    )  # fmt: skip
    wanted = set(graph.outputs)
    given = tuple(
        v for node in nodes for v in node.results
        if v in wanted or any(u not in inside for u in graph.users.get(v, ()))
    )  # fmt: skip
    own: dict[Value, Value] = {v: Input(f"in{n}", v.tensor_type) for n, v in enumerate(taken)}
    inputs = tuple(v for v in own.values() if isinstance(v, Input))
    origin: dict[Node, Node] = {}
    for node in nodes:
        results = apply(node.op, *(own.get(v, v) for v in node.inputs))
        own.update(zip(node.results, results))
        origin[results[0].node] = node
    outputs = tuple(own[v] for v in given)
    names = {new: graph.names[old] for new, old in origin.items() if old in graph.names}
    piece = Graph(inputs, outputs, tuple(f"out{n}" for n in range(len(outputs))), names)
    return NativePiece(piece, tuple(taken), given, origin)
