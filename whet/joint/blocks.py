"""Long graphs cut at narrow tensors, and blocks that repeat.

    layer -> layer -> ... -> layer -> head      ->   one block of each kind, with where it occurs

TASO (SOSP'19, section 5) splits graphs so that few operators lie across the cuts; here a cut goes
through values that one kernel leaves to another, where the fewest of them are alive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from whet.graph.graph import (
    Computed,
    Constant,
    Graph,
    Node,
    Result,
    Value,
    apply,
    make_input,
    readers,
)
from whet.joint.pricing import Whole
from whet.superopt.apply.normal import NormalBuilder
from whet.superopt.apply.rewrite import Part
from whet.tasks.places import Place

SMALLEST, LARGEST = 12, 60
"""Nodes of a block."""


@dataclass(frozen=True, eq=False)
class Block:
    """A part of a graph over inputs of its own, so that no rewrite sees where they come from."""

    part: Part
    taken: tuple[Value, ...]
    """The values of the graph behind the inputs."""
    given: tuple[Value, ...]
    """The values of the graph that the outputs are."""
    places: Mapping[Value, Place]
    """The places of inputs, outputs and of what kernels leave to each other."""


def cut_blocks(whole: Whole, shift: int = 0) -> list[Block]:
    """The blocks of a planned graph in order; with another shift the cuts are elsewhere."""
    return narrow_blocks(whole.graph, whole.stored, whole.places, shift)


def narrow_blocks(
    graph: Graph,
    stored: Collection[Value] | None = None,
    places: Mapping[Value, Place] = MappingProxyType({}),
    shift: int = 0,
) -> list[Block]:
    """The blocks of a graph in order, cut through values that are stored, or else through any."""
    order = late_order(graph)
    live = _live(graph, order)
    users = readers(order)
    needed = set(graph.outputs)
    blocks, start = [], 0
    first = SMALLEST + shift
    while start < len(order):
        end = _best_cut(stored, live, start, start + first, len(order))
        blocks.append(_block(order[start:end], users, needed, stored, places))
        start, first = end, SMALLEST
    return [b for b in blocks if b.part.nodes]


def late_order(graph: Graph) -> list[Node]:
    """The nodes, each as late as its users allow: what is needed late is not alive before."""
    part = Part(graph.inputs, graph.outputs)
    return sorted(part.nodes, key=lambda node: -part.levels[node])


def _live(graph: Graph, order: Sequence[Node]) -> list[set[Value]]:
    """The values that are alive in front of each position and at the end."""
    position = {node: n for n, node in enumerate(order)}
    last = {
        v: max((position[u] for u in graph.users.get(v, ())), default=position[node])
        for node in order
        for v in node.results
    }
    alive: set[Value] = set()
    found = []
    for n, node in enumerate(order):
        found.append(set(alive))
        alive |= {v for v in node.results if last[v] > n}
        alive -= {v for v in node.inputs if isinstance(v, Result) and last[v] <= n}
    return [*found, set()]


def _best_cut(
    stored: Collection[Value] | None,
    live: Sequence[set[Value]],
    start: int,
    first: int,
    end: int,
) -> int:
    """The position behind the block that begins at `start`, where the fewest values are alive."""
    if end - start <= LARGEST:
        return end
    choices = range(min(first, end), min(start + LARGEST, end) + 1)

    def cost(n: int) -> tuple[int, int, int]:
        alive = live[n]
        inside = 0 if stored is None else sum(v not in stored for v in alive)
        return (inside, len(alive), n)

    return min(choices, key=cost)


def _block(
    nodes: Sequence[Node],
    users: Mapping[Value, Sequence[Node]],
    needed: set[Value],
    stored: Collection[Value] | None,
    places: Mapping[Value, Place],
) -> Block:
    inside = set(nodes)
    taken = dict.fromkeys(
        v
        for node in nodes
        for v in node.inputs
        if not isinstance(v, Constant) and not (isinstance(v, Result) and v.node in inside)
    )
    given = tuple(
        v
        for node in nodes
        for v in node.results
        if v in needed or any(u not in inside for u in users.get(v, ()))
    )
    now: dict[Value, Value] = {
        v: make_input(f"taken {n}", v.tensor_type) for n, v in enumerate(taken)
    }
    inputs = tuple(now.values())
    for node in nodes:
        now.update(zip(node.results, apply(node.op, *(now.get(v, v) for v in node.inputs))))
    kept = (v for node in nodes for v in node.results if stored is not None and v in stored)
    lie = {now[v]: places[v] for v in (*taken, *given, *kept) if v in places}
    return Block(Part(inputs, tuple(now[v] for v in given)), tuple(taken), given, lie)


# ----------------------------------------------------------------------------------- repetition
@dataclass(frozen=True, eq=False)
class Form:
    """A part up to what it reads: `key` is equal for parts that compute the same, in the same
    places, of other inputs and constants; `leaves` are those, in order."""

    key: Any
    leaves: tuple[Value, ...]


def form_of(part: Part, places: Mapping[Value, Place]) -> Form:
    """The form of a part.  Constants of one element are told apart by their values."""
    numbers: dict[Value, int] = {}
    described: list[Any] = []

    def leaf(v: Value) -> int:
        if v not in numbers:
            numbers[v] = len(numbers)
            described.append(_leaf(v, places))
            leaves.append(v)
        return numbers[v]

    leaves: list[Value] = []
    wired: list[Any] = []
    for v in part.inputs:
        leaf(v)
    results: dict[Value, tuple[str, int]] = {}
    for node in part.nodes:
        read = tuple(results[v] if v in results else ("leaf", leaf(v)) for v in node.inputs)
        for v in node.results:
            results[v] = ("made", len(results))
        wired.append((node.op, read))
    ends = tuple((results.get(v) or ("leaf", leaf(v)), _lies(v, places)) for v in part.outputs)
    return Form((tuple(described), tuple(wired), ends), tuple(leaves))


def _leaf(v: Value, places: Mapping[Value, Place]) -> Any:
    if isinstance(v, Constant):
        literal = v.array.tobytes() if v.is_made and v.tensor_type.size == 1 else None
        return ("constant", v.type, literal)
    return ("input", v.type, _lies(v, places))


def _lies(v: Value, places: Mapping[Value, Place]) -> Any:
    place = places.get(v)
    return place and (place.storage.kind, place.strides, place.offset, place.border)


def transplanted(made: Part, source: Form, target: Form, block: Block) -> tuple[Value, ...]:
    """The outputs of a part, over what another block of the same form reads in the graph."""
    behind = dict(zip(block.part.inputs, block.taken))
    leaves = (behind.get(v, v) for v in target.leaves)
    now: dict[Value, Value] = dict(zip(source.leaves, leaves, strict=True))
    builder = NormalBuilder()

    def constant(v: Value) -> Value:
        if v in now or not isinstance(v, Computed):
            return now.setdefault(v, v)
        inputs = tuple(constant(i) for i in v.node.inputs)
        now.update(zip([v], [builder.results(v.node.op, *inputs)[v.index]]))
        return now[v]

    for node in made.nodes:
        inputs = tuple(constant(v) for v in node.inputs)
        now.update(zip(node.results, builder.results(node.op, *inputs), strict=True))
    return tuple(constant(v) for v in made.outputs)
