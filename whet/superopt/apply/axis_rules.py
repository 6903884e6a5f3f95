"""Rewrites along carried axes: what follows from `carried` for slices, concats and splits.

    slice(op(x, w))                      ->   op(slice(x), w)
    op(x, w), op(y, w)                   ->   split(op(concat(x, y), w))
    op(concat(x, y), w)                  ->   concat(op(x, w), op(y, w))

for any operator and rank, along an axis that the operator carries from x and not from w.  Values
stay the same, bit by bit, as far as the operator's own definition goes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from whet.core.types import TensorType
from whet.graph.graph import Node, Result, Value
from whet.ir.expr import Reduce
from whet.ir.tensor import Compute, Tensor, stages, subexpressions
from whet.ops.base import Op
from whet.ops.movement import Concat, Slice, Split
from whet.superopt.apply.carried import KNOWN, Carried, Types, carried_axes, resized, stripped
from whet.superopt.apply.normal import NormalBuilder, Run, maker, run_of
from whet.superopt.apply.rewrite import Part, Rewrite, admit

MOST_CHOICES = 64
"""Ways to choose axes of extent 1 that are looked at for one operator."""
STATEMENTS = {
    "slice": "slice({op}(x))  ->  {op}(slice(x))  along an axis that {op} carries",
    "merge": "{op}(x), {op}(y)  ->  split({op}(concat(x, y)))  along an axis that {op} carries",
    "apart": "{op}(concat(x, y))  ->  concat({op}(x), {op}(y))  along an axis that {op} carries",
}
"""What the laws say, by the first word of the names of rewrites: `slice-matmul`."""
ALL_PAIRS = 4
"""Groups of up to so many operators are also merged two by two."""


def node_types(node: Node) -> Types:
    return tuple(v.tensor_type for v in node.inputs)


@lru_cache(maxsize=KNOWN)
def mergeable_axes(op: Op, types: Types) -> tuple[Carried, ...]:
    """The axes along which instances of the operator can be put together: carried from inputs of
    the same extent.  Axes of extent 1 count where the operator carries them once they are longer.
    """
    found = []
    for along in carried_axes(op, types):
        (result,) = op.infer_types(types)
        assert isinstance(result, TensorType)
        extent = result.shape[along.axis]
        if all(b is None or t.shape[b] == extent for t, b in zip(types, along.inputs)):
            found.append(along)
    return (*found, *_single_axes(op, types))


def _single_axes(op: Op, types: Types) -> Iterator[Carried]:
    results = op.infer_types(types)
    if len(results) != 1 or not isinstance(results[0], TensorType):
        return
    for axis, extent in enumerate(results[0].shape):
        if extent != 1:
            continue
        places = [[None, *(n for n, d in enumerate(t.shape) if d == 1)] for t in types]
        for choice in itertools.islice(itertools.product(*places), MOST_CHOICES):
            along = Carried(axis, choice)
            if any(b is not None for b in choice) and resized(op, types, along, [2]) is not None:
                yield along


@lru_cache(maxsize=KNOWN)
def sums_up(op: Op, types: Types) -> bool:
    """Whether the operator reduces: putting such operators together pays by itself."""
    if op.compute is None:
        return False
    inputs = tuple(_placeholder(n, t) for n, t in enumerate(types))
    made = op.compute_tensors(inputs)
    return any(
        isinstance(e, Reduce)
        for s in stages(made)
        if isinstance(s, Compute)
        for e in subexpressions(s.body)
    )


def _placeholder(n: int, t: TensorType) -> Tensor:
    from whet.ir.tensor import placeholder

    return placeholder(t.shape, t.dtype, f"x{n}")


# -------------------------------------------------------------------------------------- slices
def slice_rewrites(part: Part, alone: bool = False) -> Iterator[Rewrite]:
    """Slices moved in front of the operators whose results they cut; if `alone`, only where
    nothing else needs the whole result."""
    b = NormalBuilder()
    for node in part.nodes:
        if not isinstance(node.op, Slice):
            continue
        run = run_of(node.results[0])
        if run is None or not isinstance(run.base, Result) or run.base in part.inputs:
            continue
        shared = len(part.users[run.base]) > 1 or run.base in part.needed
        if alone and shared:
            continue
        new = _cut(b, run.base.node, run)
        if new is not None:
            made = Rewrite(f"slice-{run.base.node.op.name}", "exact", node.results, (new,))
            if admit(part, made):
                yield made


def _cut(b: NormalBuilder, node: Node, run: Run) -> Value | None:
    """The operator on inputs that are cut as its result would be."""
    types = node_types(node)
    extent = run.stop - run.start
    for along in carried_axes(node.op, types):
        if along.axis != run.axis:
            continue
        op = resized(node.op, types, along, [extent])
        if op is None:
            continue
        inputs = [
            v if place is None else b.run(replace_run(run, v, place))
            for v, place in zip(node.inputs, along.inputs)
        ]
        return b.results(op, *inputs)[0]
    return None


def replace_run(run: Run, base: Value, axis: int) -> Run:
    """The same places of another value."""
    return replace(run, base=base, axis=axis)


# -------------------------------------------------------------------------------------- merges
@dataclass(frozen=True, slots=True)
class _Kind:
    """The properties that operators must share to be put together."""

    op: type[Op]
    meaning: Any
    along: Carried
    whole: tuple[int, ...]


def merge_rewrites(part: Part, heavy: bool = True) -> Iterator[Rewrite]:
    """Operators with the same whole inputs put together, and those of the parts of one value.

    Without `heavy` only the latter, of operators that do not reduce: bias and activation follow
    the products that were put together.
    """
    b = NormalBuilder()
    ancestors = _ancestors(part)
    for along, members in _families(part, heavy):
        for chosen in _independent_groups(part, members, ancestors):
            made = merged(b, along, chosen)
            if made is not None and admit(part, made):
                yield made


def merged(b: NormalBuilder, along: Carried, nodes: Sequence[Node]) -> Rewrite | None:
    """The operators as one operator on concatenated inputs."""
    first = nodes[0]
    sizes = tuple(node.results[0].tensor_type.shape[along.axis] for node in nodes)
    op = resized(first.op, node_types(first), along, [sum(sizes)])
    if op is None:
        return None
    inputs = [
        first.inputs[n]
        if place is None
        else b.results(Concat(place), *(node.inputs[n] for node in nodes))[0]
        for n, place in enumerate(along.inputs)
    ]
    whole = b.results(op, *inputs)[0]
    parts = b.results(Split(along.axis, sizes), whole)
    old = tuple(node.results[0] for node in nodes)
    return Rewrite(f"merge-{first.op.name}", "exact", old, parts)


def _families(part: Part, with_heavy: bool) -> Iterator[tuple[Carried, list[Node]]]:
    """Nodes that may be put together, by the axis along which they may."""
    found: dict[_Kind, list[Node]] = {}
    levels = part.levels
    for node in part.nodes:
        if len(node.results) != 1 or node.op.host or not node.inputs:
            continue
        types = node_types(node)
        for along in mergeable_axes(node.op, types):
            whole = tuple(id(v) for v, p in zip(node.inputs, along.inputs) if p is None)
            meaning = stripped(node.op, types, along)
            found.setdefault(_Kind(type(node.op), meaning, along, whole), []).append(node)
    for kind, members in found.items():
        if len(members) < 2:
            continue
        heavy = sums_up(members[0].op, node_types(members[0]))
        if heavy and not with_heavy:
            continue
        if kind.whole and heavy:
            # The first step of a recurrence is the farthest from its end.
            yield kind.along, sorted(members, key=lambda n: -levels[n])
        else:
            for some in _side_by_side(part, kind.along, members):
                yield kind.along, some


def _side_by_side(part: Part, along: Carried, members: list[Node]) -> Iterator[list[Node]]:
    """Those of the nodes that read neighbouring parts of one value, or are joined by a concat."""
    by_base: dict[Value, list[tuple[int, Node]]] = {}
    by_user: dict[Node, list[Node]] = {}
    for node in members:
        for v, place in zip(node.inputs, along.inputs):
            run = run_of(v) if place is not None else None
            if run is not None and run.axis == place:
                by_base.setdefault(run.base, []).append((run.start, node))
                break
        for user in part.users.get(node.results[0], ()):
            if isinstance(user.op, Concat) and user.op.axis == along.axis:
                by_user.setdefault(user, []).append(node)
    for found in by_base.values():
        ordered = sorted(found, key=lambda pair: (pair[0], part.position[pair[1]]))
        if len({start for start, _ in ordered}) == len(ordered) > 1:
            yield [node for _, node in ordered]
    for user, nodes in by_user.items():
        if len(nodes) > 1:
            yield sorted(nodes, key=lambda n: user.inputs.index(n.results[0]))


def _independent_groups(
    part: Part, members: list[Node], ancestors: Mapping[Node, int]
) -> Iterator[list[Node]]:
    """The largest group of which none needs another, and pairs where there are few."""
    group: set[Node] = set()
    for node in sorted(members, key=part.position.__getitem__):
        bits = ancestors[node]
        if not any(bits >> part.position[other] & 1 for other in group):
            group.add(node)
    order = [node for node in members if node in group]
    if len(order) > 1:
        yield order
    if 2 < len(order) <= ALL_PAIRS:
        yield from (list(pair) for pair in itertools.combinations(order, 2))


def _ancestors(part: Part) -> dict[Node, int]:
    """The nodes that each node needs, as bits at their positions."""
    found: dict[Node, int] = {}
    for node in part.nodes:
        bits = 0
        for v in node.inputs:
            if isinstance(v, Result) and v.node in found:
                bits |= found[v.node] | 1 << part.position[v.node]
        found[node] = bits
    return found


# ------------------------------------------------------------------------------------- concats
def part_rewrites(part: Part) -> Iterator[Rewrite]:
    """Operators on a concat as operators on its parts."""
    b = NormalBuilder()
    for node in part.nodes:
        if len(node.results) != 1 or node.op.host or isinstance(node.op, Concat):
            continue
        types = node_types(node)
        joined = [n for n in map(maker, node.inputs) if n is not None and isinstance(n.op, Concat)]
        if not joined:
            continue
        for along in mergeable_axes(node.op, types):
            made = _apart(b, node, along)
            if made is not None and admit(part, made):
                yield made


def _apart(b: NormalBuilder, node: Node, along: Carried) -> Rewrite | None:
    """The operator part by part, where the inputs that carry the axis are cut alike."""
    for v, place in zip(node.inputs, along.inputs):
        made = maker(v)
        if place is None or made is None or not isinstance(made.op, Concat):
            continue
        if made.op.axis != place or not isinstance(v, Result):
            continue
        sizes = [p.tensor_type.shape[place] for p in made.inputs]
        starts = list(itertools.accumulate(sizes, initial=0))
        pieces = [_cut(b, node, Run(node.results[0], along.axis, start, start + size))
                  for start, size in zip(starts, sizes)]  # fmt: skip
        if any(p is None for p in pieces):
            return None
        whole = b.results(Concat(along.axis), *(p for p in pieces if p is not None))
        return Rewrite(f"apart-{node.op.name}", "exact", node.results, whole)
    return None
