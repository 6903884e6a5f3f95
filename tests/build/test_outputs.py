"""Outputs that are views of computed values: no writer gets less memory than it writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE, TARGET, check_native
from tests.build.test_calls import graph_of, inputs_of
from whet.build.native import build
from whet.core.dtypes import DType, f32, f64, i8, i64
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value, make_input
from whet.graph.interpret import interpret
from whet.ir.program import Buffer
from whet.ops.activation import Elu, LeakyRelu, PRelu, Relu, Selu
from whet.ops.arithmetic import Abs
from whet.ops.conv import Conv
from whet.ops.fill import Pad, Trilu
from whet.ops.gather import Gather
from whet.ops.logic import Less, Where
from whet.ops.matmul import MatMul
from whet.ops.movement import Slice, Split, Transpose
from whet.ops.pool import MaxPool
from whet.ops.select import TopK
from whet.ops.softmax import Softmax
from whet.tasks.places import Storage


def leading(b: GraphBuilder, v: Value, rows: int) -> Value:
    """The first rows of a value."""
    shape = v.tensor_type.shape
    return b.one(Slice((0,) * len(shape), (rows, *shape[1:]), (1,) * len(shape)), v)


def backwards(b: GraphBuilder, v: Value) -> Value:
    """The value from its last element to its first."""
    shape = v.tensor_type.shape
    return b.one(Slice(tuple(d - 1 for d in shape), (-1,) * len(shape), (-1,) * len(shape)), v)


def numbers(graph: Graph, seed: int = 1) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(
        rng.integers(-9, 9, v.tensor_type.shape).astype(v.tensor_type.dtype.numpy)
        for v in graph.inputs
    )


def zero(b: GraphBuilder, like: Value) -> Value:
    return b.constant(np.zeros((), like.tensor_type.dtype.numpy))


def part_of_relu(b: GraphBuilder, x: Value) -> Value:
    return leading(b, b.one(Relu(), x), 4)


def part_of_product(b: GraphBuilder, x: Value) -> Value:
    return leading(b, b.one(MatMul(), x, b.one(Transpose((1, 0)), x)), 1)


def part_of_softmax(b: GraphBuilder, x: Value) -> Value:
    return b.one(Gather(0), b.one(Softmax(1), x), b.constant(np.array([0, 1])))


def part_of_sorted(b: GraphBuilder, x: Value) -> Value:
    largest, _ = b.results(TopK(0, 5), x)
    return leading(b, largest, 2)


def first_half(b: GraphBuilder, x: Value) -> Value:
    first, _ = b.results(Split(0, (2, 3)), b.one(Relu(), x))
    return first


PARTS = [part_of_relu, part_of_product, part_of_softmax, part_of_sorted, first_half]


@pytest.mark.parametrize(
    ("part", "dtype"),
    [(p, t) for p in PARTS for t in (f32, f64, i8, i64) if t.is_float or p is not part_of_softmax],
)
def test_outputs_may_be_the_leading_part_of_a_value(
    part: Callable[[GraphBuilder, Value], Value], dtype: DType
) -> None:
    b = GraphBuilder()
    (x,) = inputs_of(b, (5, 17), dtype=dtype)
    graph = graph_of([part(b, x)], [x])
    check_native(graph, numbers(graph), part.__name__)


def test_a_leading_part_of_channels_last() -> None:
    b = GraphBuilder()
    (x,) = inputs_of(b, (4, 3, 9, 9))
    w = b.constant(np.ones((8, 3, 3, 3), np.float32))
    y = b.one(Conv((1, 1), (1, 1, 1, 1), (1, 1), 1), x, w)
    graph = graph_of([leading(b, b.one(Transpose((0, 2, 3, 1)), y), 2)], [x])
    check_native(graph, numbers(graph), "channels last")


@pytest.mark.parametrize("dtype", [f32, i64])
@pytest.mark.parametrize("length", [4, 37])
def test_reversed_values_under_a_condition(dtype: DType, length: int) -> None:
    """Both sides of a select are loaded, from the end of a value to its beginning."""
    b = GraphBuilder()
    x, y = inputs_of(b, (3, length), (3, length), dtype=dtype)
    turned, other = backwards(b, b.one(Abs(), x)), backwards(b, x)
    positive = b.one(Less(), y, x)
    found = [
        b.one(Where(), positive, turned, other),
        b.one(Trilu(upper=True), turned),
        b.one(Pad((0, 2, 0, 2), "reflect"), other, zero(b, x)),
    ]
    if dtype.is_float:
        slope = b.constant(np.full((length,), 0.5, np.float32))
        found += [b.one(op(), other) for op in (LeakyRelu, Elu, Selu)]
        found.append(b.one(PRelu(), other, slope))
    graph = graph_of(found, [x, y])
    check_native(graph, numbers(graph), "reversed")


def test_a_product_and_a_convolution_of_a_reversed_value_under_a_condition() -> None:
    b = GraphBuilder()
    (x,) = inputs_of(b, (1, 3, 7, 9))
    leaky = b.one(LeakyRelu(0.1), backwards(b, x))
    w = b.constant(np.random.default_rng(3).uniform(-1, 1, (5, 3, 3, 3)).astype(np.float32))
    m = b.constant(np.random.default_rng(4).uniform(-1, 1, (9, 5)).astype(np.float32))
    graph = graph_of(
        [b.one(Conv((1, 1), (1, 1, 1, 1), (1, 1), 1), leaky, w), b.one(MatMul(), leaky, m)], [x]
    )
    check_native(graph, numbers(graph), "reversed")


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 2, 1, 0), (0, 0, 2, 2)])
def test_checked_code_computes_padded_windows(stride: int, pads: tuple[int, ...]) -> None:
    b = GraphBuilder()
    (x,) = inputs_of(b, (2, 5, 9, 11))
    rng = np.random.default_rng(5)
    w, v = (
        b.constant(rng.uniform(-1, 1, s).astype(np.float32)) for s in ((7, 5, 3, 3), (7, 1, 3, 3))
    )
    y = b.one(Conv((stride, stride), pads, (1, 1), 1), b.one(Relu(), x), w)
    z = b.one(Conv((1, 1), pads, (1, 1), 7), b.one(Abs(), y), v)
    p = b.one(MaxPool((2, 2), (1, 1), (1, 0, 0, 1), (1, 1)), z)
    graph = graph_of([y, z, p], [x])
    arrays = numbers(graph)
    got = build(graph, TARGET, 1, NO_CACHE, checked=True)(arrays)
    for array, expected in zip(got, interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("buffer", "border"),
    [
        (Buffer("x", (5, 17), f32), None),
        (Buffer("x", (4,), f32, (-1,), 2), None),
        (Buffer("x", (4,), f32, (1,), 60), ((0, 1),)),
        (Buffer("x", (4,), f32, (1,), 0), ((1, 0),)),
        (Buffer("x", (4,), f64), None),
    ],
)
def test_memory_that_is_too_small_is_never_given(
    buffer: Buffer, border: tuple[tuple[int, int], ...] | None
) -> None:
    storage = Storage("output", 64, f32, make_input("y", TensorType((64,), f32)))
    storage.demand(Buffer("x", (8, 8), f32))
    with pytest.raises(AssertionError, match="do not lie in output memory of 64"):
        storage.demand(buffer, border)


def test_memory_of_the_caller_is_as_large_as_its_value() -> None:
    value = make_input("y", TensorType((4, 17), f32))
    assert Storage("arena", 85, f32, value).nbytes == 340
    with pytest.raises(AssertionError, match="85 elements do not lie in output of 68"):
        Storage("output", 85, f32, value)
