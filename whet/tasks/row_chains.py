"""Chains of groups over common rows, made one group where a kernel keeps the rows between them.

[m = mean(x)], [y = x - m]                                   ->   [m, y]
[s = matmul(q, k)], [p = softmax(s)], [y = matmul(p, v)]     ->   [s, p, y]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.graph.graph import Node, Result, Value
from whet.ir.expr import Axis, Const, Read
from whet.ir.tensor import subexpressions
from whet.tasks.dag import Dag
from whet.tasks.groups import Chain, Group, Judge, detour, passed_on, producers, reduces
from whet.tasks.structure import structure_of


def merge_products(
    graph: Dag, groups: list[Group], owner: dict[Node, Group], keep_rows: Chain
) -> None:
    """Products and the row stages between them made one group each.

    [s = matmul(q, k)], [p = softmax(s)], [y = matmul(p, v)]   ->   [s, p, y]

    Where all three together do not pay, the first two may.
    """
    for group in list(groups):
        if group not in groups or group.opaque:
            continue
        for producer in producers(group, owner):
            passed = passed_on(graph, producer, group) if producer.heavy else None
            if passed is None or _reads_windows(group, passed):
                continue
            chain = [producer, group]
            longer = [*chain, *_only_product_after(graph, group, owner)]
            if len(longer) > 2 and _one_result(graph, longer) and keep_rows(longer):
                chain = longer
            elif not _one_result(graph, chain) or not keep_rows(chain):
                continue
            *before, last = chain
            last.nodes = [node for g in chain for node in g.nodes]
            last.heavy = True
            for g in before:
                owner.update(dict.fromkeys(g.nodes, last))
                groups.remove(g)
            break


def _reads_windows(group: Group, v: Value) -> bool:
    """True when a node reads the value at sums of positions: what windows share would be computed
    for each of them."""
    return any(
        v is given and not _reads_along_axes(node, n)
        for node in group.nodes
        for n, given in enumerate(node.inputs)
    )


def _reads_along_axes(node: Node, position: int) -> bool:
    s = structure_of(node)
    if s is None:
        return False
    return all(
        isinstance(index, (Axis, Const))
        for stage in s.computes
        for e in subexpressions(stage.body)
        if isinstance(e, Read) and e.tensor is s.inputs[position]
        for index in e.indices
    )


def _one_result(graph: Dag, chain: Sequence[Group]) -> bool:
    return len(Group([node for group in chain for node in group.nodes]).outputs(graph)) == 1


def _only_product_after(graph: Dag, group: Group, owner: Mapping[Node, Group]) -> list[Group]:
    """The product that alone reads the one result of a group of row stages, if there is one."""
    results = group.outputs(graph)
    if group.heavy or len(results) != 1:
        return []
    readers = {owner.get(user) for user in graph.users.get(results[0], ())}
    reader = readers.pop() if len(readers) == 1 else None
    if reader is None or not reader.heavy or passed_on(graph, group, reader) is None:
        return []
    return [reader]


def merge_rows(
    graph: Dag, groups: list[Group], owner: dict[Node, Group], share_rows: Judge
) -> None:
    """Chains of light groups over common rows made one group each."""
    for group in list(groups):
        if group.heavy or group.opaque:
            continue
        for producer in producers(group, owner):
            if producer.heavy or producer.opaque or producer not in groups:
                continue
            if detour(graph, producer, group, owner) or not share_rows(producer, group):
                continue
            order = {node: n for n, node in enumerate(graph.nodes)}
            group.nodes = sorted({*producer.nodes, *group.nodes}, key=lambda n: order[n])
            owner.update(dict.fromkeys(producer.nodes, group))
            groups.remove(producer)


def release_producers(
    graph: Dag,
    groups: list[Group],
    owner: dict[Node, Group],
    alone: Mapping[Node, Group],
    keep_rows: Chain,
) -> None:
    """Element-wise groups at the head of a chain taken out of it where they are cheaper alone.

    [x = table[tokens] + positions, m = mean(x), y = x - m]   ->   [x = ...], [m = ..., y = ...]

    A chain is asked about as a whole: its stages pay together, not one by one.
    """
    for group in list(groups):
        if group.heavy or group.opaque:
            continue
        parts = dict.fromkeys(alone[node] for node in group.nodes)
        for part in parts if len(parts) > 1 else ():
            inside = [node for node in group.nodes if alone[node] is part]
            rest = [node for node in group.nodes if alone[node] is not part]
            needs = {v.node for node in inside for v in node.inputs if isinstance(v, Result)}
            if needs.intersection(rest) or any(map(reduces, inside)) or not any(map(reduces, rest)):
                continue
            head = Group(inside)
            if keep_rows([head, Group(rest)]):
                continue
            group.nodes = rest
            owner.update(dict.fromkeys(inside, head))
            groups.insert(groups.index(group), head)
