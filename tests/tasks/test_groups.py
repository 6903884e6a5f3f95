"""Which nodes one kernel computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import check_native, plan_of
from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.graph.passes import expand_composites
from whet.graph.text import parse_graph
from whet.ops.activation import Gelu, Relu, Sigmoid
from whet.ops.arithmetic import Add, Mul, Sub
from whet.ops.matmul import MatMul
from whet.ops.movement import Transpose
from whet.ops.reduce import ReduceMax
from whet.ops.softmax import Softmax

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
    return len(plan_of(expand_composites(graph)).steps)


def test_what_reads_a_product_twice_is_computed_with_it() -> None:
    b = GraphBuilder()
    given, y = product(b)
    assert steps(given, b(Mul(), y, b(Sigmoid(), y))) == 1


def test_branches_that_meet_again_are_computed_with_their_product() -> None:
    b = GraphBuilder()
    given, y = product(b)
    positive = b(Relu(), y)
    square = b(Mul(), positive, positive)
    leak = b(Mul(), y, b.constant(np.float32(0.1)))
    assert steps(given, b(Sub(), square, leak)) == 1


def test_branches_of_which_one_is_wanted_are_apart() -> None:
    b = GraphBuilder()
    given, y = product(b)
    square = b(Mul(), b(Relu(), y), b(Relu(), y))
    assert steps(given, b(Sub(), square, b(Sigmoid(), y)), square) == 3


def test_branches_of_elements_that_meet_again_are_one() -> None:
    b = GraphBuilder()
    given = b.input("a", A), b.input("b", A)
    x = b(Add(), *given)
    assert steps(given, b(Sub(), b(Relu(), x), b(Mul(), x, b(Sigmoid(), x)))) == 1


def test_branches_around_a_product_are_no_cycle() -> None:
    """The sum of x and of a product that reads x cannot be computed with x."""
    b = GraphBuilder()
    given = b.input("a", A), b.input("w", TensorType((40, 40), f32))
    x = b(Relu(), given[0])
    assert steps(given, b(Add(), x, b(MatMul(), x, given[1]))) == 2


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


def attention(
    b: GraphBuilder, keys: int = 24, heads: int = 3
) -> tuple[tuple[Value, ...], Value, Value]:
    """The inputs, the rows between the two products, and the result."""
    shapes = [(heads, 20, 16), (heads, keys, 16), (heads, keys, 8), (20, keys)]
    given = tuple(b.input(f"x{n}", TensorType(shape, f32)) for n, shape in enumerate(shapes))
    q, k, v, mask = given
    scores = b(Add(), b(MatMul(), q, b(Transpose((0, 2, 1)), k)), mask)
    rows = b(Softmax(2), scores)
    return given, rows, b(MatMul(), rows, v)


def test_attention_is_one_kernel() -> None:
    b = GraphBuilder()
    given, _, y = attention(b)
    assert steps(given, y) == 1


def test_a_product_with_rows_and_nothing_behind_is_one_kernel() -> None:
    b = GraphBuilder()
    given, rows, _ = attention(b)
    assert steps(given, rows) == 1


def test_rows_that_are_wanted_end_the_kernel() -> None:
    b = GraphBuilder()
    given, rows, y = attention(b)
    assert steps(given, y, rows) == 2


def test_rows_too_long_for_the_cache_are_stored() -> None:
    b = GraphBuilder()
    given, _, y = attention(b, keys=9000, heads=1)
    assert steps(given, y) == 3


CROSSED = """\
i0: i64[5, 17] = input("x")
i1: i64[5, 17] = input("z")
v0: i64[5, 1] = reduce_max(i0, axes=[1], keepdims=true)
v1: i64[5, 1] = reduce_max(i1, axes=[1], keepdims=true)
v2: i64[5, 17] = mul(i0, i1)
v3: i64[5, 17] = add(v2, v0)
v4: i64[5, 1] = mul(v0, v0)
v5: i64[5, 1] = reduce_sum(v2, axes=[1], keepdims=true)
v6: i64[5, 1] = add(v4, v5)
v7: i64[5, 1] = reduce_sum(v1, axes=[1], keepdims=true)
return "y0"=v0, "y1"=v1, "y2"=v2, "y3"=v3, "y4"=v6, "y5"=v7
"""
"""The sum of v0 and v2 needs their groups, and so does v4 + v5: two groups that lie crosswise."""

ROUND = """\
i0: i64[5, 17] = input("x")
i1: i64[5, 17] = input("z")
v0: i64[5, 17] = sub(i0, i1)
v1: i64[5, 17] = add(v0, i1)
v2: i64[5, 1] = reduce_sum(i1, axes=[1], keepdims=true)
v3: i64[5, 1] = reduce_max(v0, axes=[1], keepdims=true)
v4: i64[5, 17] = sub(v2, i0)
v5: i64[5, 17] = add(v1, v4)
v6: i64[5, 17] = mul(v1, v5)
v7: i64[5, 17] = add(v0, v4)
return "y0"=v0, "y1"=v1, "y2"=v2, "y3"=v3, "y4"=v6, "y5"=v7
"""
"""Groups that would need each other if v0 and v7 were one."""


@pytest.mark.parametrize("text", [CROSSED, ROUND], ids=["crossed", "round"])
def test_groups_never_need_each_other(text: str) -> None:
    graph = parse_graph(text)
    x = np.arange(85).reshape(5, 17)
    check_native(graph, (x, x % 7), "crossed groups")
