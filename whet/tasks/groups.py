"""Partition: which nodes are computed together.

A group starts with one node and grows:

1. an element-wise node joins the group that produces one of its inputs at full shape, if
   nothing else reads that input (an epilogue: bias, activation, residual);
2. element-wise nodes that together are all that read a contraction, or other element-wise
   nodes, and have one result join it as well (gelu and silu, which read it more than once);
3. reductions along contiguous rows and the element-wise nodes around them become one group
   when they share their rows (softmax, layer-norm);
4. a product, the reductions along its rows that alone read it, and a product that alone reads
   those become one group where a kernel can keep the rows in cache (attention);

and nodes that only move data are views of memory where strides can express them.
All rules look at neighbours only, so a rewrite of the graph changes groups near it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from whet.core.types import Shape
from whet.graph.graph import Constant, Node, Result, Value
from whet.ir.expr import Axis, Const, Read
from whet.ir.tensor import subexpressions
from whet.tasks.dag import Dag
from whet.tasks.structure import Structure, reads_in_place, structure_of


@dataclass(eq=False)
class Group:
    """Nodes that one kernel computes, in topological order."""

    nodes: list[Node] = field(default_factory=list)
    heavy: bool = False
    """Holds a contraction or a window: its work must not be repeated or torn apart."""
    opaque: bool = False
    """No tensor expressions: a loop program or a host operator."""

    def outputs(self, graph: Dag) -> tuple[Value, ...]:
        """The values that other groups or the caller need."""
        inside = set(self.nodes)
        wanted = set(graph.outputs)
        return tuple(
            v
            for node in self.nodes
            for v in node.results
            if v in wanted or any(u not in inside for u in graph.users.get(v, ()))
        )

    def inputs(self) -> tuple[Value, ...]:
        inside = set(self.nodes)
        found = [v for node in self.nodes for v in node.inputs]
        return tuple(
            dict.fromkeys(v for v in found if not (isinstance(v, Result) and v.node in inside))
        )


Judge = Callable[[Group, Group], bool]
"""Says whether two groups, of which the second reads the first, can be one."""
Chain = Callable[[Sequence[Group]], bool]
"""Says whether groups, each of which reads the one before, should be one."""


def partition(
    graph: Dag, is_view: Mapping[Node, bool], share_rows: Judge, keep_rows: Chain
) -> tuple[Group, ...]:
    """The groups in an order in which they can run; views belong to none.

    `share_rows` says whether two groups can be one chain of stages over common rows, and
    `keep_rows` whether one kernel should keep the rows between groups, or each have its own.
    """
    owner: dict[Node, Group] = {}
    groups: list[Group] = []
    for node in graph.nodes:
        if is_view.get(node):
            continue
        s = structure_of(node)
        group = _epilogue_of(graph, node, s, owner)
        if group is None:
            group = Group(heavy=s is not None and _is_heavy(s), opaque=s is None)
            groups.append(group)
        else:
            # It now needs what this node needs, so it runs where this node stands.
            groups.remove(group)
            groups.append(group)
        group.nodes.append(node)
        owner[node] = group
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
    return all(_in_place(node, inside, shape) for node in group.nodes)


def _passed_on(graph: Dag, first: Group, last: Group) -> Value | None:
    """The one value that the first group computes, if the last group alone reads it."""
    results = first.outputs(graph)
    if len(results) != 1 or results[0] in graph.outputs:
        return None
    readers = graph.users[results[0]]
    return results[0] if all(reader in last.nodes for reader in readers) else None


def _in_place(node: Node, inside: set[Value], shape: Shape) -> bool:
    """True for an element-wise node that reads these values only where it writes."""
    s = structure_of(node)
    if s is None or not s.is_pointwise or len(s.computes) != 1:
        return False
    if any(
        v.tensor_type.shape != shape for v in (*node.results, *inside.intersection(node.inputs))
    ):
        return False
    return all(reads_in_place(s, n) for n, v in enumerate(node.inputs) if v in inside)


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
        for producer in _producers(group, owner):
            passed = _passed_on(graph, producer, group) if producer.heavy else None
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
    if reader is None or not reader.heavy or _passed_on(graph, group, reader) is None:
        return []
    return [reader]


def merge_rows(
    graph: Dag, groups: list[Group], owner: dict[Node, Group], share_rows: Judge
) -> None:
    """Chains of light groups over common rows made one group each."""
    for group in list(groups):
        if group.heavy or group.opaque:
            continue
        for producer in _producers(group, owner):
            if producer.heavy or producer.opaque or producer not in groups:
                continue
            if _detour(graph, producer, group, owner) or not share_rows(producer, group):
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


def reduces(node: Node) -> bool:
    """Whether a node sums, or takes the largest of, anything."""
    s = structure_of(node)
    return s is not None and bool(s.reduces)


def in_order(
    groups: list[Group], owner: Mapping[Node, Group], is_view: Mapping[Node, bool]
) -> tuple[Group, ...]:
    """The groups sorted so that each follows those it needs, views looked through."""
    order: dict[Group, None] = {}
    stack = [(g, False) for g in reversed(groups)]
    while stack:
        group, ready = stack.pop()
        if group in order:
            continue
        if ready:
            order[group] = None
            continue
        stack.append((group, True))
        stack += [(g, False) for g in _needs(group, owner, is_view) if g not in order]
    position = {group: n for n, group in enumerate(order)}
    for group in order:
        if any(position[g] > position[group] for g in _needs(group, owner, is_view)):
            raise AssertionError("groups need each other")
    return tuple(order)


def _needs(group: Group, owner: Mapping[Node, Group], is_view: Mapping[Node, bool]) -> list[Group]:
    """The groups that compute what this one reads."""
    found: dict[Group, None] = {}
    values = list(group.inputs())
    while values:
        v = values.pop()
        if not isinstance(v, Result):
            continue
        if v.node in owner:
            if owner[v.node] is not group:
                found[owner[v.node]] = None
        elif is_view.get(v.node):
            values += v.node.inputs
    return list(found)


def _producers(group: Group, owner: Mapping[Node, Group]) -> list[Group]:
    """The groups whose results this one reads directly."""
    nodes = [v.node for v in group.inputs() if isinstance(v, Result)]
    return list(dict.fromkeys(owner[n] for n in nodes if n in owner and owner[n] is not group))


def _detour(graph: Dag, first: Group, last: Group, owner: Mapping[Node, Group]) -> bool:
    """True when a third group lies between the two: merging them would make a cycle.

    Groups run as a whole, so a way through one may enter at a node and leave at another that
    does not depend on it:   first -> h1, h2 -> last   with h1 and h2 in one group.
    """
    ends = (first, last)
    seen: set[Group | Node] = set()
    frontier = [unit for unit in _readers(graph, first.nodes, owner) if unit not in ends]
    while frontier:
        unit = frontier.pop()
        if unit in seen:
            continue
        seen.add(unit)
        nodes = unit.nodes if isinstance(unit, Group) else [unit]
        readers = _readers(graph, nodes, owner)
        if last in readers:
            return True
        frontier += [reader for reader in readers if reader not in seen]
    return False


def _readers(graph: Dag, nodes: Sequence[Node], owner: Mapping[Node, Group]) -> list[Group | Node]:
    """The groups, and views that belong to none, that read what the nodes compute."""
    users = (u for node in nodes for v in node.results for u in graph.users.get(v, ()))
    return list(dict.fromkeys(owner.get(u, u) for u in users))


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
        single = len(group.nodes[0].results) == 1
        if alone and fits and single and not group.opaque and group.nodes[-1] is v.node:
            candidates.append(group)
    if not candidates:
        return None
    heavy = [g for g in candidates if g.heavy]
    return (heavy or candidates)[-1]
