"""The default layout pass: which axis of each value is contiguous, and its zero border.

A contraction wants its output contiguous along the axis that only one factor has and its
other operand along the reduced axis; for convolutions that is channels last.  Wishes spread
through element-wise and windowed nodes.  The caller's arrays are row-major; they are converted
at the model's edges, unless a window slides along their rows and nothing else is wanted of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from whet.core.types import Shape
from whet.graph.graph import Constant, Node, Value
from whet.ir.expr import Read
from whet.tasks.dag import Dag
from whet.tasks.structure import (
    Structure,
    axes_without_gaps,
    has_dense_window,
    ranges_of,
    structure_of,
    transposed_last_axis,
    transposition_of,
    vector_axis_of_contraction,
    zero_border,
)
from whet.tasks.task import Border, wider_border
from whet.tasks.windows import slides_along_rows, slides_over_vectors, sliding_window

WIDE = 16
"""Elements that fill the widest vectors there are."""


@dataclass(frozen=True)
class Layouts:
    """Side-table on a graph's values: the contiguous axis (absent: the last) and the border."""

    inner: Mapping[Value, int] = field(default_factory=dict)
    border: Mapping[Value, Border] = field(default_factory=dict)


ChooseLayouts = Callable[[Dag, Mapping[Value, int]], Layouts]
"""Gives all values layouts; of some the contiguous axis is known."""


def storage_order(rank: int, inner: int | None) -> tuple[int, ...]:
    """Axes from slowest to fastest."""
    if inner is None or rank == 0:
        return tuple(range(rank))
    return (*(a for a in range(rank) if a != inner), inner)


def strides_of(shape: Shape, inner: int | None, border: Border | None) -> tuple[Shape, int, int]:
    """Strides, offset of element 0, and size of the memory of a value."""
    border = border or ((0, 0),) * len(shape)
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(storage_order(len(shape), inner)):
        strides[axis] = step
        step *= shape[axis] + sum(border[axis])
    offset = sum(low * s for (low, _), s in zip(border, strides))
    return tuple(strides), offset, step


def choose_layouts(graph: Dag, pinned: Mapping[Value, int] | None = None) -> Layouts:
    """Layouts for all values that nodes produce; of pinned ones the contiguous axis is known."""
    pinned = pinned or {}
    wishes: dict[Value, dict[int, int]] = {}
    found = {node: structure_of(node) for node in graph.nodes}
    for node, s in found.items():
        if s is None:
            continue
        weights = frozenset(p for p, v in zip(s.inputs, node.inputs) if isinstance(v, Constant))
        wanted = vector_axis_of_contraction(s, weights)
        if wanted is not None and _better_along_rows(graph, node, s, *wanted):
            pass
        elif wanted is not None:
            axis, operand, operand_axis = wanted
            _wish(wishes, node.results[0], axis)
            _wish(wishes, node.inputs[_position(s, operand.tensor.name)], operand_axis)
        else:
            gapless = axes_without_gaps(s)
            for value, tensor in zip((*node.inputs, *node.results), (*s.inputs, *s.outputs)):
                if tensor in gapless:
                    _wish(wishes, value, gapless[tensor])
    inner = {v: max(axes, key=lambda a: axes[a]) for v, axes in wishes.items()}
    inner = _worth_converting(graph, found, inner, pinned)
    if pinned:
        inner = _as_around(found, inner, pinned)
    else:
        inner |= _as_at_the_edges(graph, found, inner)
    _spread(graph, found, inner)
    changed = {
        v: a
        for v, a in inner.items()
        if not isinstance(v, Constant) and not _is_row_major(v.tensor_type.shape, a)
    }
    return Layouts(changed, _borders(graph, found, changed))


def keep_rows(graph: Dag, pinned: Mapping[Value, int]) -> Layouts:
    """Layouts that leave every value in rows, as callers have it; `choose_layouts` is judged by
    them.  Pinned values lie where they do."""
    found = {node: structure_of(node) for node in graph.nodes}
    inner = {v: a for v, a in pinned.items() if not _is_row_major(v.tensor_type.shape, a)}
    return Layouts(inner, _borders(graph, found, inner))


def _borders(
    graph: Dag, found: Mapping[Node, Structure | None], inner: Mapping[Value, int]
) -> dict[Value, Border]:
    """The zeros around values that windows reach beyond, where readers do not do without."""
    border: dict[Value, Border] = {}
    for node, s in found.items():
        for value, placeholder in zip(node.inputs, s.inputs if s is not None else ()):
            need = zero_border(s, placeholder) if s and not isinstance(value, Constant) else None
            if need is not None:
                border[value] = wider_border(border.get(value), need)
    for given in graph.inputs:
        if given in border and given not in inner and _gets_a_border_later(graph, found, given):
            del border[given]
    for v in [v for v in border if _is_read_in_place(graph, found, v, inner)]:
        del border[v]
    return border


def _better_along_rows(
    graph: Dag, node: Node, s: Structure, axis: int, operand: Read, operand_axis: int
) -> bool:
    """True when lanes along the wanted axis would mostly idle and the caller's rows fill them.

    A convolution of the model's input that makes three channels runs along the pixels.
    """
    given = node.inputs[_position(s, operand.tensor.name)]
    long = given.tensor_type.rank - 1 != operand_axis and given.tensor_type.shape[-1] >= WIDE
    few = node.results[0].tensor_type.shape[axis] < WIDE // 2
    return given in graph.inputs and few and long


def _gets_a_border_later(graph: Dag, found: Mapping[Node, Structure | None], given: Value) -> bool:
    """True for an input whose one reader copies rows anyway and adds their border then.

    A border around the caller's array would take a pass over memory that does nothing else.
    """
    readers = [node for node in graph.nodes for v in node.inputs if v is given]
    if len(readers) != 1 or given in graph.outputs:
        return False
    s = found[readers[0]]
    return s is not None and len(s.computes) == 1 and slides_along_rows(s.computes[0])


def _is_read_in_place(
    graph: Dag, found: Mapping[Node, Structure | None], value: Value, inner: Mapping[Value, int]
) -> bool:
    """True when every reader is a window over vectors, which leaves out what lies outside."""

    def lanes(v: Value) -> int:
        return inner.get(v, v.tensor_type.rank - 1)

    def in_place(node: Node, position: int) -> bool:
        s = found[node]
        if s is None or len(s.computes) != 1:
            return False
        return slides_over_vectors(
            s.computes[0], s.inputs[position], lanes(value), lanes(node.results[0])
        )

    return all(
        in_place(node, n) for node in graph.nodes for n, v in enumerate(node.inputs) if v is value
    )


def _worth_converting(
    graph: Dag,
    found: Mapping[Node, Structure | None],
    inner: dict[Value, int],
    pinned: Mapping[Value, int],
) -> dict[Value, int]:
    """The wishes of parts of the graph that gain from another layout.

    A product without a window runs as well along either axis, so parts that hold nothing else
    stay as they are and need no conversion at the model's edges, unless their rows are short or
    the edges, or values that are pinned, have the other layout already.
    """
    part = _Parts(found)
    wanting: list[Value] = []
    for node, s in found.items():
        if s is None or s.is_movement:
            continue
        wishes = any(_short_rows(v.tensor_type.shape, inner[v]) for v in node.results if v in inner)
        if has_dense_window(s) or axes_without_gaps(s) or wishes:
            wanting += node.results
    wanting += (v for v, a in pinned.items() if not _is_row_major(v.tensor_type.shape, a))
    gaining = {part.root(v) for v in wanting} | _moved_at_the_edges(graph, found, inner, part)
    return {v: axis for v, axis in inner.items() if part.root(v) in gaining}


def _as_around(
    found: Mapping[Node, Structure | None], inner: Mapping[Value, int], pinned: Mapping[Value, int]
) -> dict[Value, int]:
    """The wishes where nothing is known; parts with values that lie in rows stay in rows."""
    part = _Parts(found)
    in_rows = {
        part.root(v) for v, axis in pinned.items() if _is_row_major(v.tensor_type.shape, axis)
    }  # fmt: skip
    free = {v: axis for v, axis in inner.items() if part.root(v) not in in_rows}
    return {**free, **pinned}


def _moved_at_the_edges(
    graph: Dag, found: Mapping[Node, Structure | None], inner: dict[Value, int], part: _Parts
) -> set[Value]:
    """Parts whose wishes the model's edges fulfil more often than not.

    x[n, h, w, c] transposed to [n, c, h, w] has its channels last in memory: nothing moves.
    """
    balance: dict[Value, int] = {}
    for v, axis in inner.items():
        if (v in graph.inputs or v in graph.outputs) and not _is_row_major(
            v.tensor_type.shape, axis
        ):
            balance[part.root(v)] = balance.get(part.root(v), 0) - 1
    for node, s in found.items():
        order = transposition_of(s) if s is not None else None
        if not order:
            continue
        source, result = node.inputs[0], node.results[0]
        last = len(order) - 1
        if (
            source in graph.inputs
            and order[last] != last
            and inner.get(result) == order.index(last)
        ):
            balance[part.root(result)] = balance.get(part.root(result), 0) + 1
        if result in graph.outputs and order[last] != last and inner.get(source) == order[last]:
            balance[part.root(source)] = balance.get(part.root(source), 0) + 1
    return {root for root, count in balance.items() if count > 0}


def _short_rows(shape: Shape, axis: int) -> bool:
    """True when what lies behind an axis fills vectors badly: 49 pixels take 64 lanes."""
    behind = math.prod(shape[axis + 1 :])
    return behind > 1 and -(-behind // WIDE) * WIDE > 1.2 * behind


def _as_at_the_edges(
    graph: Dag, found: Mapping[Node, Structure | None], inner: Mapping[Value, int]
) -> dict[Value, int]:
    """The layout of parts that have no wish, but get and give transposed arrays of the caller's.

    transpose(pool(transpose(x, perm=[0, 3, 1, 2])), perm=[0, 2, 3, 1])   ->   pool along axis 1

    Both transpositions are then mere views.
    """
    part = _Parts(found)
    wanted: dict[Value, set[int | None]] = {}
    ends: dict[Value, set[str]] = {}
    for v in (*graph.inputs, *graph.outputs):
        wanted.setdefault(part.root(v), set()).add(None)  # as it is
    for node, s in found.items():
        if s is None or not s.is_movement:
            if s is None or not _lanes_may_change(s):
                for v in node.results:
                    wanted.setdefault(part.root(v), set()).add(None)
            continue
        axis = transposed_last_axis(s)
        if axis is not None and node.inputs[0] in graph.inputs:
            wanted.setdefault(part.root(node.results[0]), set()).add(axis[1])
            ends.setdefault(part.root(node.results[0]), set()).add("in")
        if axis is not None and node.results[0] in graph.outputs:
            wanted.setdefault(part.root(node.inputs[0]), set()).add(axis[0])
            ends.setdefault(part.root(node.inputs[0]), set()).add("out")
    taken = {part.root(v) for v in inner}
    made: dict[Value, int] = {}
    for v in part.values:
        root = part.root(v)
        axes = wanted.get(root, set())
        if root in taken or ends.get(root) != {"in", "out"} or len(axes) != 1:
            continue
        (only,) = axes
        if only is not None and only < v.tensor_type.rank:
            made[v] = only
    return made


def _lanes_may_change(s: Structure) -> bool:
    """True when lanes can run along any axis: element-wise nodes and windows on planes."""
    return len(s.computes) == 1 and (s.is_pointwise or sliding_window(s.computes[0]) is not None)


def _keeps_axes(s: Structure) -> bool:
    """True unless data is moved to other axes: parts of a value lie as it does."""
    return not s.is_movement or None not in ranges_of(s)


class _Parts:
    """Disjoint sets of values that share a layout: those that nodes compute with, or take parts
    of."""

    def __init__(self, found: Mapping[Node, Structure | None]) -> None:
        self.parent: dict[Value, Value] = {}
        self.values: dict[Value, None] = {}
        for node, s in found.items():
            if s is None or not _keeps_axes(s):
                continue
            values = [v for v in (*node.inputs, *node.results) if not isinstance(v, Constant)]
            self.values |= dict.fromkeys(values)
            for v in values[1:]:
                self.join(values[0], v)

    def root(self, v: Value) -> Value:
        while v in self.parent:
            v = self.parent[v]
        return v

    def join(self, a: Value, b: Value) -> None:
        a, b = self.root(a), self.root(b)
        if a is not b:
            self.parent[b] = a


def _is_row_major(shape: Shape, inner: int) -> bool:
    """True when putting this axis last changes nothing."""
    return all(d == 1 for d in shape[inner + 1 :]) or shape[inner] == 1


def _wish(wishes: dict[Value, dict[int, int]], value: Value, axis: int) -> None:
    axes = wishes.setdefault(value, {})
    axes[axis] = axes.get(axis, 0) + 1


def _position(s: Structure, name: str) -> int:
    return next(n for n, p in enumerate(s.inputs) if p.name == name)


def _spread(graph: Dag, found: Mapping[Node, Structure | None], inner: dict[Value, int]) -> None:
    """Give values without a wish the axis of their neighbours, in two sweeps each way."""
    for nodes in (graph.nodes, tuple(reversed(graph.nodes))) * 2:
        for node in nodes:
            s = found[node]
            if s is None or s.contraction is not None or not _keeps_axes(s):
                continue
            rank = max((v.tensor_type.rank for v in node.results), default=0)
            around = [v for v in (*node.inputs, *node.results) if v.tensor_type.rank == rank]
            known = [inner[v] for v in around if v in inner]
            if not known or rank < 3:
                continue
            for v in around:
                # For a part of it the caller's array is not converted as a whole.
                if not isinstance(v, Constant) and not (s.is_movement and v in graph.inputs):
                    inner.setdefault(v, known[0])
