"""Which values a scan takes from outside, and which of its results are computed behind it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whet.graph.graph import Constant, Node, Result, Value, topological
from whet.graph.passes.steps.kinds import Kinds, only_moves
from whet.graph.passes.steps.lifting import Lifted


@dataclass(frozen=True)
class Frontier:
    """Values that a body does not compute: slices of stacks, and whole ones."""

    slices: tuple[Value, ...]
    wholes: tuple[Value, ...]


def find_frontier(kinds: Kinds, roots: Iterable[Value]) -> Frontier:
    """The values from which the body computes the roots, with as much as pays outside.

    Computed outside: (1) what is the same in all steps; (2) products of slices that pay, as long
    as memory allows, with what alone reads them and is no larger, such as the sum with a bias.
    """
    slices: dict[Value, None] = {}
    wholes: dict[Value, None] = {}
    seen: set[Value] = set()
    waiting = list(roots)
    while waiting:
        value = waiting.pop()
        if value in seen or isinstance(value, Constant):
            continue
        seen.add(value)
        if value in kinds.parts.slices:
            slices[value] = None
        elif value in kinds.parts.wholes:
            wholes[value] = None
        elif isinstance(value, Result):
            if value in kinds.whole and not _only_enlarges(value.node):
                wholes[value] = None
            elif _is_cut(kinds, value) and kinds.fits([*slices, value], kinds.parts.op.length):
                slices[value] = None
            else:
                waiting.extend(reversed(value.node.inputs))
    return Frontier(tuple(slices), tuple(wholes))


def _is_cut(kinds: Kinds, value: Result) -> bool:
    """Whether the value, and not what it is computed from, is what the body should be given."""
    if value not in kinds.products or only_moves(value.node):
        return False
    if kinds.pays(value.node):
        return True
    sources = [v for v in value.node.inputs if v in kinds.products]
    given = {*kinds.parts.body.outputs}
    alone = all(len(kinds.parts.body.users[v]) == 1 and v not in given for v in sources)
    stored = sum(v.tensor_type.nbytes for v in sources)
    return alone and sum(v.tensor_type.nbytes for v in value.node.results) <= stored


def _only_enlarges(node: Node) -> bool:
    """Whether the node writes the elements that it reads several times."""
    read, written = (sum(v.tensor_type.size for v in vs) for vs in (node.inputs, node.results))
    return written > read and only_moves(node)


@dataclass(frozen=True)
class Sunk:
    """Nodes that run behind a scan for all steps at once, and the values that they need of it."""

    nodes: dict[Node, Lifted]
    cut: tuple[Value, ...]


def find_sunk(kinds: Kinds) -> Sunk:
    """Products that pay and feed no state, and all that is computed from them.

    scan(body: h -> h', h' @ V)   ->   scan(body: h -> h', h') @ V

    """
    parts = kinds.parts
    fixed = set(topological(parts.state_results)) | kinds.lifted.keys()
    users = parts.body.users
    movable: dict[Node, Lifted] = {}
    for node in reversed(parts.body.nodes):
        readers = [u for r in node.results for u in users.get(r, ())]
        if node in fixed or any(u not in movable for u in readers) or _is_whole(kinds, node):
            continue
        found = kinds.lift(node)
        if found is not None:
            movable[node] = found
    sunk: dict[Node, Lifted] = {}
    for node in parts.body.nodes:
        below = any(isinstance(v, Result) and v.node in sunk for v in node.inputs)
        if node in movable and (below or kinds.pays(node)):
            sunk[node] = movable[node]
    made = {r for node in sunk for r in node.results}
    cut = dict.fromkeys(
        v
        for node in sunk
        for v in node.inputs
        if v not in made and not kinds.is_whole(v) and not kinds.is_stepped(v)
    )
    if not kinds.fits(cut, parts.op.length):
        return Sunk({}, ())
    return Sunk(sunk, tuple(cut))


def _is_whole(kinds: Kinds, node: Node) -> bool:
    return any(map(kinds.is_whole, node.results))


def leaving_outputs(kinds: Kinds, pieces: Iterable[Value], roots: Iterable[Value]) -> set[Value]:
    """Those results of steps that depend on no state and are computed outside instead.

    One that shares work with what the body computes for the roots stays: it would be done twice.
    """
    needed = list(roots)
    frontier = find_frontier(kinds, needed)
    outside = {*frontier.slices, *frontier.wholes}
    inside = {n for n in topological(needed, outside) if not only_moves(n)}
    return {
        v
        for v in pieces
        if kinds.is_whole(v)
        or (kinds.is_stepped(v) and inside.isdisjoint(topological([v], outside)))
    }
