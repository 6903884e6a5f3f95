"""Which nodes one kernel computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import check_native
from whet.build.plan import make_plan
from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.graph.passes import expand_composites
from whet.ops.activation import Gelu, Sigmoid
from whet.ops.arithmetic import Add, Mul
from whet.ops.matmul import MatMul
from whet.ops.reduce import ReduceMax

A, B = TensorType((6, 40), f32), TensorType((40, 48), f32)


def product(b: GraphBuilder) -> tuple[tuple[Value, Value], Value]:
    given = b.input("a", A), b.input("b", B)
    return given, b(MatMul(), *given)


def steps(given: tuple[Value, ...], *outputs: Value) -> int:
    names = tuple(f"y{n}" for n in range(len(outputs)))
    graph = Graph(given, outputs, names)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    arrays = tuple(rng.standard_normal(v.tensor_type.shape).astype(np.float32) for v in given)
    check_native(graph, arrays, "groups")
    return len(make_plan(expand_composites(graph)).steps)


def test_what_reads_a_product_twice_is_computed_with_it() -> None:
    b = GraphBuilder()
    given, y = product(b)
    assert steps(given, b(Mul(), y, b(Sigmoid(), y))) == 1


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_computed_with_its_product(approximate: str) -> None:
    b = GraphBuilder()
    given, y = product(b)
    assert steps(given, b(Gelu(approximate=approximate), y)) == 1  # type: ignore[arg-type]


def test_a_product_that_is_wanted_itself_is_stored_first() -> None:
    b = GraphBuilder()
    given, y = product(b)
    assert steps(given, b(Mul(), y, b(Sigmoid(), y)), y) == 2


def test_a_product_that_something_else_reads_is_stored_first() -> None:
    b = GraphBuilder()
    given, y = product(b)
    largest = b(ReduceMax(axes=(0,), keepdims=True), y)
    scaled = b(Mul(), y, b(Sigmoid(), y))
    assert steps(given, scaled, largest) == 3


def test_what_reads_a_product_at_other_places_is_apart() -> None:
    b = GraphBuilder()
    given, y = product(b)
    first = b.input("c", TensorType((1, 6, 48), f32))
    shifted = b(Add(), first, y)  # another rank: y is broadcast
    assert steps((*given, first), b(Mul(), shifted, shifted)) == 2
