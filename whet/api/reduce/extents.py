"""Smaller arrays: the same nodes with fewer elements along an axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from whet.api.reduce.cutting import Case
from whet.core.errors import WhetError
from whet.core.types import Array, TensorType
from whet.graph.graph import Constant, Graph, Node, Value, apply, make_constant, make_input
from whet.ops.base import Op


def smaller_cases(case: Case) -> Iterator[Case]:
    """The case with all axes of one extent cut down, the longest extents first."""
    values = (*case.graph.inputs, *case.graph.constants)
    extents = {d for v in values for d in v.tensor_type.shape if d > 1}
    for old in sorted(extents, reverse=True):
        for new in dict.fromkeys((1, 2, old // 2)):
            if 0 < new < old and (made := with_extent(case, old, new)) is not None:
                yield made


def with_extent(case: Case, old: int, new: int) -> Case | None:
    """The case with `new` for every extent `old`, or None where its operators refuse that.

        matmul(x: f32[4, 64], w: f32[64, 8])   ->   matmul(x: f32[4, 2], w: f32[2, 8])

    Extents among the attributes (the shape of a reshape) follow where they have to.  It is another
    model, which may or may not show the problem.
    """
    inputs = {v: make_input(v.name, _cut_type(v.tensor_type, old, new)) for v in case.graph.inputs}
    now: dict[Value, Value] = dict(inputs.items())
    names: dict[Node, str] = {}
    for node in case.graph.nodes:
        operands = [
            make_constant(_cut(v.array, old, new)) if isinstance(v, Constant) else now[v]
            for v in node.inputs
        ]
        for op in dict.fromkeys((node.op, _with_extents(node.op, old, new))):
            try:
                results = apply(op, *operands)
            except WhetError:
                continue
            now.update(zip(node.results, results, strict=True))
            if node in case.graph.names:
                names.setdefault(results[0].node, case.graph.names[node])
            break
        else:
            return None
    outputs = tuple(now[v] for v in case.graph.outputs)
    graph = Graph(tuple(inputs.values()), outputs, case.graph.output_names, names)
    return Case(graph, {name: _cut(array, old, new) for name, array in case.arrays.items()})


def _cut_type(t: TensorType, old: int, new: int) -> TensorType:
    return t.with_shape([new if d == old else d for d in t.shape])


def _cut(array: Array, old: int, new: int) -> Array:
    """The first elements along every axis of that extent."""
    return array[tuple(slice(new if d == old else d) for d in array.shape)]


def _with_extents(op: Op, old: int, new: int) -> Op:
    """The operator with the extent replaced in its lists of numbers."""

    def changed(value: Any) -> Any:
        return tuple(new if v == old else v for v in value) if isinstance(value, tuple) else value

    fields = {f.name: changed(getattr(op, f.name)) for f in dataclasses.fields(op)}  # type: ignore[arg-type]
    return dataclasses.replace(op, **fields)  # type: ignore[type-var]
