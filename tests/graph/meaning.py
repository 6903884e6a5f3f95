"""Graphs written as terms, and whether two of them mean the same."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph, make_input
from whet.graph.interpret import interpret
from whet.graph.terms import build_term, read_term

RNG = np.random.default_rng(5)


def graph_of(term: str, **types: TensorType) -> Graph:
    inputs = {name: make_input(name, t) for name, t in types.items()}
    outputs = build_term(read_term(term), inputs)
    return Graph(tuple(inputs.values()), outputs, tuple(f"y{n}" for n in range(len(outputs))))


def f(*shape: int) -> TensorType:
    return TensorType(shape, f32)


def operators(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def random_arrays(graph: Graph) -> list[Array]:
    drawn = []
    for v in graph.inputs:
        values = RNG.standard_normal(v.tensor_type.shape) * 4
        drawn.append(np.asarray(values).astype(v.tensor_type.dtype.numpy))
    return drawn


def assert_same_meaning(before: Graph, after: Graph, *, exact: bool = True) -> None:
    assert [v.type for v in before.outputs] == [v.type for v in after.outputs]
    arrays = random_arrays(before)
    for a, b in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
