"""Partition: which nodes are computed together.

A group starts with one node and grows:

1. an element-wise node joins the group that produces one of its inputs at full shape, if
   nothing else reads that input (an epilogue: bias, activation, residual);
2. element-wise nodes that together are all that read a contraction, or other element-wise
   nodes, and have one result join it as well (gelu and silu, which read it more than once);
3. reductions along contiguous rows and the element-wise nodes around them become one group
   when they share their rows (softmax, layer-norm);
4. a contraction, the split that alone reads it, and element-wise nodes that alone read a part of
   it become one group where a kernel can store every part in its own way (`divisions`);
5. a product, the reductions along its rows that alone read it, and a product that alone reads
   those become one group where a kernel can keep the rows in cache (attention);

and nodes that only move data are views of memory where strides can express them.
All rules look at neighbours only, so a rewrite of the graph changes groups near it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.core.types import Shape
from whet.graph.graph import Constant, Node, Result, Value
from whet.tasks.dag import Dag
from whet.tasks.divisions import Division
from whet.tasks.groups import Chain, Group, Judge, in_order
from whet.tasks.row_chains import merge_products, merge_rows, release_producers
from whet.tasks.structure import Structure, in_place, reads_in_place, structure_of


def partition(
    graph: Dag,
    is_view: Mapping[Node, bool],
    divisions: Sequence[Division],
    share_rows: Judge,
    keep_rows: Chain,
) -> tuple[Group, ...]:
    """The groups in an order in which they can run; views belong to none.

    Each of the `divisions` is a group.  `share_rows` says whether two groups can be one chain of
    stages over common rows, and `keep_rows` whether one kernel should keep the rows between groups,
    or each have its own.
    """
    owner: dict[Node, Group] = {}
    groups: list[Group] = []
    divided = {n: group for d in divisions for group in [Group(heavy=True)] for n in d.nodes}
    for node in graph.nodes:
        if is_view.get(node):
            continue
        s = structure_of(node)
        group = divided.get(node) or _epilogue_of(graph, node, s, owner)
        if group is None:
            group = Group(heavy=s is not None and _is_heavy(s), opaque=s is None)
            groups.append(group)
        else:
            # It now needs what this node needs, so it runs where this node stands.
            if group.nodes:
                groups.remove(group)
            groups.append(group)
        group.nodes.append(node)
        owner[node] = group
    for division in divisions:
        owner[division.split].nodes = list(division.nodes)
    merge_epilogues(graph, groups, owner)
    alone = dict(owner)
    merge_rows(graph, groups, owner, share_rows)
    release_producers(graph, groups, owner, alone, keep_rows)
    merge_products(graph, groups, owner, keep_rows)
    return in_order(groups, owner, is_view)


def merge_epilogues(graph: Dag, groups: list[Group], owner: dict[Node, Group]) -> None:
    """Element-wise groups made part of the group whose only readers they are, together.

    [y = matmul(a, b)], [t = sigmoid(y), z = y * t]        ->   [y = matmul(a, b), t = ..., z = ...]
    [y = matmul(a, b)], [s = relu(y)], [z = s - y * 0.1]   ->   [y = matmul(a, b), s = ..., z = ...]

    Contractions choose first: what they have is worth more in registers.
    """
    order = {node: n for n, node in enumerate(graph.nodes)}
    for first in sorted(groups, key=lambda g: not g.heavy):
        if first not in groups or not (first.heavy or _is_pointwise(first)):
            continue
        while closing := _closing(graph, first, owner):
            added = [node for group in closing for node in group.nodes]
            first.nodes = sorted([*first.nodes, *added], key=lambda n: order[n])
            owner.update(dict.fromkeys(added, first))
            # It now needs what they need, so it runs where the last of them stood.
            groups.remove(first)
            groups[max(groups.index(group) for group in closing)] = first
            for group in closing:
                if group in groups:
                    groups.remove(group)


def _is_pointwise(group: Group) -> bool:
    found = [structure_of(node) for node in group.nodes]
    return all(s is not None and s.is_pointwise for s in found)


def _closing(graph: Dag, first: Group, owner: Mapping[Node, Group]) -> list[Group]:
    """Element-wise groups that read all results of the first one, and in the end have one.

    Nothing outside can lie between them: what they compute leaves them in one place, and if it
    came back it would come before itself.
    """
    results = first.outputs(graph)
    if len(results) != 1 or results[0] in graph.outputs:
        return []
    shape, closing = results[0].tensor_type.shape, list[Group]()
    while True:
        inside = [first, *closing]
        computed: set[Value] = {v for g in inside for node in g.nodes for v in node.results}
        readers = {
            owner.get(user): None for v in results for user in graph.users.get(v, ())
        }  # fmt: skip
        added = [
            group for group in readers
            if group is not None and group not in inside and _continues(group, computed, shape)
        ]  # fmt: skip
        if not added:
            return []
        closing += added
        results = Group([n for g in (first, *closing) for n in g.nodes]).outputs(graph)
        if len(results) == 1:
            return closing


def _continues(group: Group, computed: set[Value], shape: Shape) -> bool:
    """True for an element-wise group that reads those values only where it writes."""
    if group.heavy or group.opaque:
        return False
    inside = {*computed, *(v for node in group.nodes for v in node.results)}
    return all(in_place(node, inside, shape) for node in group.nodes)


def _epilogue_of(
    graph: Dag, node: Node, s: Structure | None, owner: Mapping[Node, Group]
) -> Group | None:
    """The group that this element-wise node can join."""
    if s is None or not s.is_pointwise or len(node.results) != 1 or len(s.computes) != 1:
        return None
    shape = node.results[0].tensor_type.shape
    candidates = []
    for v in dict.fromkeys(node.inputs):
        if isinstance(v, Constant) or not isinstance(v, Result) or v.node not in owner:
            continue
        group = owner[v.node]
        alone = len(graph.users.get(v, ())) == 1 and v not in graph.outputs
        fits = v.tensor_type.shape == shape and reads_in_place(s, node.inputs.index(v))
        # With a second result, something else may lie between the group and this node.
        single = all(len(n.results) == 1 for n in group.nodes)
        if alone and fits and single and not group.opaque and group.nodes[-1] is v.node:
            candidates.append(group)
    if not candidates:
        return None
    heavy = [g for g in candidates if g.heavy]
    return (heavy or candidates)[-1]


def _is_heavy(s: Structure) -> bool:
    """A contraction, or a reduction that reads its input more than once per element."""
    if s.contraction is not None:
        return True
    work = sum(_volume(r.axes) for r in s.reduces)
    outputs = sum(t.type.size for t in s.outputs)
    inputs = max((p.type.size for p in s.inputs), default=1)
    return bool(s.reduces) and outputs * work > 2 * inputs


def _volume(axes: tuple[object, ...]) -> int:
    total = 1
    for axis in axes:
        total *= getattr(axis, "extent", 1)
    return total
