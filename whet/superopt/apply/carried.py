"""Axes that an operator carries through unchanged, read off its tensor expression.

    y[i, j] = sum(x[i, k] * w[k, j] for k in 64)      axis 0 of y is axis 0 of x; w is whole
                                                      axis 1 of y is axis 1 of w; x is whole

Along such an axis every element of the result is computed from the elements at the same place, in
the same way: the operator commutes with slice, concat and split along it, whatever its rank.
"The same way" is decided by comparing expressions: `stripped` is what is left of an expression when
the axis is taken out of it, and two instances of an operator (on a part and on the whole) agree
along the axis exactly if the same is left of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from whet.core.errors import WhetError
from whet.core.types import TensorType
from whet.graph.graph import Graph, Node, make_input
from whet.graph.passes.expand_composites import ExpandingBuilder
from whet.ir.affine import rebuild
from whet.ir.expr import Axis, Const, Expr, Read, Reduce
from whet.ir.tensor import Compute, Placeholder, Tensor, subexpressions
from whet.ops.base import Op

KNOWN = 1 << 14
"""Instances of operators that are remembered."""

Types = tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """An axis of an operator's result and the axis of each input that it is; None for inputs that
    every place along the axis sees whole."""

    axis: int
    inputs: tuple[int | None, ...]


@lru_cache(maxsize=KNOWN)
def carried_axes(op: Op, types: Types) -> tuple[Carried, ...]:
    """The axes that the operator carries from at least one input to its only result."""
    found = []
    try:
        results = op.infer_types(types)
    except WhetError:
        return ()
    if len(results) != 1 or not isinstance(results[0], TensorType):
        return ()
    for axis, extent in enumerate(results[0].shape):
        inputs = _origins(op, types, axis) if extent > 1 else None
        if inputs is not None and any(b is not None for b in inputs):
            found.append(Carried(axis, inputs))
    return tuple(found)


def _origins(op: Op, types: Types, axis: int) -> tuple[int | None, ...] | None:
    """The axis of each input that the result's axis is, if the result can be stripped of it."""
    if op.compute is None:
        return _origins_inside(op, types, axis)
    stage = _stage(op, types)
    if stage is None or axis >= len(stage.axes):
        return None
    inputs = _reads(stage, axis, types)
    if inputs is None or stripped(op, types, Carried(axis, inputs)) is None:
        return None
    return inputs


def _reads(stage: Compute, axis: int, types: Types) -> tuple[int | None, ...] | None:
    """The place of the axis in the reads of each input; None if it is at different places."""
    wanted = stage.axes[axis]
    found: dict[str, set[int]] = {}
    for tensor, places in _places(stage, wanted):
        found.setdefault(tensor, set()).update(places)
    if any(len(places) > 1 for places in found.values()):
        return None
    return tuple(next(iter(found.get(f"x{n}", ())), None) for n in range(len(types)))


def _places(stage: Compute, wanted: Expr) -> Iterator[tuple[str, set[int]]]:
    """For each read of an input the positions of its indices at which the axis stands alone."""
    for e in subexpressions(stage.body):
        if not isinstance(e, Read):
            continue
        at = {n for n, i in enumerate(e.indices) if i is wanted}
        if isinstance(e.tensor, Placeholder):
            yield e.tensor.name, at
        elif isinstance(e.tensor, Compute):
            for n in at:
                yield from _places(e.tensor, e.tensor.axes[n])


@lru_cache(maxsize=KNOWN)
def stripped(op: Op, types: Types, along: Carried) -> Any:
    """The operator's meaning with the axis taken out; None if it is not carried like that.

        y[i, j] = relu(x[i, j]), axis 1    ->    y[i] = relu(x[i])

    Equal for instances that differ in extents along the axis alone.
    """
    if op.compute is None:
        return _stripped_inside(op, types, along)
    stage = _stage(op, types)
    if stage is None or along.axis >= len(stage.axes):
        return None
    return _strip(stage, along.axis, along.inputs)


@lru_cache(maxsize=KNOWN)
def _stage(op: Op, types: Types) -> Compute | None:
    inputs = tuple(Placeholder(f"x{n}", t.shape, t.dtype) for n, t in enumerate(types))
    try:
        made = op.compute_tensors(inputs)
    except WhetError:
        return None
    return made[0] if len(made) == 1 and isinstance(made[0], Compute) else None


def _strip(stage: Compute, axis: int, inputs: tuple[int | None, ...]) -> Compute | None:
    removed = stage.axes[axis]
    try:
        body = _without(stage.body, removed, inputs)
    except _NotCarriedError:
        return None
    return Compute(stage.name, (*stage.axes[:axis], *stage.axes[axis + 1 :]), body)


class _NotCarriedError(Exception):
    """The axis is used for more than to say where elements are read."""


def _without(e: Expr, axis: Axis, inputs: tuple[int | None, ...]) -> Expr:
    """The expression without the axis: reads lose an index, and nothing else may mention it."""
    if e is axis or (isinstance(e, Reduce) and axis in e.axes):
        raise _NotCarriedError
    if isinstance(e, Read):
        return _read_without(e, axis, inputs)
    return rebuild(e, [_without(part, axis, inputs) for part in e.children()])


def _read_without(e: Read, axis: Axis, inputs: tuple[int | None, ...]) -> Expr:
    tensor = e.tensor
    if isinstance(tensor, Compute):
        at = [n for n, i in enumerate(e.indices) if i is axis]
        rest = [i for n, i in enumerate(e.indices) if n not in at[:1]]
        indices = tuple(_without(i, axis, inputs) for i in rest)
        whole = (None,) * len(inputs)
        inner = _strip(tensor, at[0], inputs) if at else _strip_nothing(tensor, inputs, whole)
        if inner is None:
            raise _NotCarriedError
        return Read(inner, indices)
    place = inputs[int(tensor.name[1:])]
    if place is None:
        return Read(tensor, tuple(_without(i, axis, inputs) for i in e.indices))
    index = e.indices[place]
    single = tensor.shape[place] == 1 and isinstance(index, Const) and index.value == 0
    if index is not axis and not (single and axis.extent == 1):
        raise _NotCarriedError
    shape = (*tensor.shape[:place], *tensor.shape[place + 1 :])
    smaller = Placeholder(tensor.name, shape, tensor.dtype)
    rest = [i for n, i in enumerate(e.indices) if n != place]
    return Read(smaller, tuple(_without(i, axis, inputs) for i in rest))


def _strip_nothing(
    stage: Compute, inputs: tuple[int | None, ...], whole: tuple[int | None, ...]
) -> Compute | None:
    """A stage that does not see the axis: it may read whole inputs only."""
    for e in subexpressions(stage.body):
        if isinstance(e, Read):
            t: Tensor = e.tensor
            if isinstance(t, Compute):
                if _strip_nothing(t, inputs, whole) is None:
                    return None
            elif inputs[int(t.name[1:])] is not None:
                return None
    return stage


# ----------------------------------------------------------------------------------- composites
@lru_cache(maxsize=KNOWN)
def _expansion(op: Op, types: Types) -> Graph | None:
    """The operator written out in simpler ones."""
    builder = ExpandingBuilder()
    if op.expand is None or not builder.expands(op):
        return None
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(types))
    try:
        outputs = builder.results(op, *inputs)
    except WhetError:
        return None
    return Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))


def _inside(graph: Graph, axis: int) -> dict[Any, int | None] | None:
    """The axis of every value of an expansion that the result's axis is, from the result back."""
    needs: dict[Any, int | None] = {graph.outputs[0]: axis}
    for node in reversed(graph.nodes):
        if len(node.results) != 1:
            return None
        need = needs.get(node.results[0])
        types = _types(node)
        origins = (None,) * len(types) if need is None else _origins(node.op, types, need)
        if origins is None:
            return None
        for value, place in zip(node.inputs, origins):
            if needs.setdefault(value, place) != place:
                return None
    return needs


def _types(node: Node) -> Types:
    return tuple(v.tensor_type for v in node.inputs)


def _origins_inside(op: Op, types: Types, axis: int) -> tuple[int | None, ...] | None:
    graph = _expansion(op, types)
    needs = _inside(graph, axis) if graph is not None else None
    if graph is None or needs is None:
        return None
    return tuple(needs.get(v) for v in graph.inputs)


def _stripped_inside(op: Op, types: Types, along: Carried) -> Any:
    """The nodes of the expansion, each stripped, and how they are wired."""
    graph = _expansion(op, types)
    if graph is None or len(graph.outputs) != 1:
        return None
    needs: dict[Any, int | None] = dict(zip(graph.inputs, along.inputs))
    numbers: dict[Any, Any] = {v: n for n, v in enumerate(graph.inputs)}
    parts = []
    for node in graph.nodes:
        places = tuple(needs.get(v) for v in node.inputs)
        types = _types(node)
        if all(p is None for p in places):
            meaning: Any = (node.op, types)
            axis = None
        else:
            axis = _forward(node, places)
            if axis is None:
                return None
            meaning = stripped(node.op, types, Carried(axis, places))
        read = tuple(numbers.get(v, v) for v in node.inputs)
        parts.append((meaning, read))
        needs[node.results[0]], numbers[node.results[0]] = axis, len(numbers)
    if needs.get(graph.outputs[0]) != along.axis:
        return None
    return tuple(parts)


def _forward(node: Node, places: tuple[int | None, ...]) -> int | None:
    """The axis of the node's result that these axes of its inputs become.

    Where extents of 1 leave several, the one at the same place comes first: most operators keep it.
    """
    if len(node.results) != 1:
        return None
    rank = node.results[0].tensor_type.rank
    for axis in sorted(range(rank), key=lambda n: (n not in places, n)):
        if stripped(node.op, _types(node), Carried(axis, places)) is not None:
            return axis
    return None


# ------------------------------------------------------------------------------- other extents
def resized(op: Op, types: Types, along: Carried, extents: Sequence[int]) -> Op | None:
    """The operator on inputs with other extents along the axis, meaning the same there.

        reshape(x: [1, 128, 768], shape=[1, 128, 12, 64]), axis 1 to 1   ->   shape=[1, 1, 12, 64]

    `extents` gives one extent for all carried axes.  Attributes that repeat the result's extent
    follow it; whether that means the same is decided by comparing what is left without the axis.
    """
    (extent,) = set(extents)
    (result,) = op.infer_types(types)
    assert isinstance(result, TensorType)
    wanted = _with_extent(result, along.axis, extent)
    inputs = tuple(
        t if b is None else _with_extent(t, b, extent) for t, b in zip(types, along.inputs)
    )
    for candidate in (op, *_following(op, along.axis, result.shape[along.axis], extent)):
        try:
            if candidate.infer_types(inputs) != (wanted,):
                continue
        except WhetError:
            continue
        meaning = stripped(candidate, inputs, along)
        if meaning is not None and meaning == stripped(op, types, along):
            return candidate
    return None


def _with_extent(t: TensorType, axis: int, extent: int) -> TensorType:
    return t.with_shape((*t.shape[:axis], extent, *t.shape[axis + 1 :]))


def _following(op: Op, axis: int, old: int, new: int) -> Iterator[Op]:
    """The operator with the extent replaced in attributes that list one number per axis."""
    for field in fields(op):  # type: ignore[arg-type]
        value = getattr(op, field.name)
        if isinstance(value, tuple) and len(value) > axis and value[axis] == old:
            changed = (*value[:axis], new, *value[axis + 1 :])
            yield replace(op, **{field.name: changed})  # type: ignore[type-var]
