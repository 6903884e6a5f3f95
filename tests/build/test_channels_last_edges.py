"""Layouts at the model's edges: what lies as a kernel likes it is not moved."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import check_native
from whet.build.native import NativeExecutable
from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.ops.activation import Relu
from whet.ops.conv import Conv
from whet.ops.movement import Transpose

FIRST, LAST = Transpose((0, 3, 1, 2)), Transpose((0, 2, 3, 1))
RNG = np.random.default_rng(5)


def convolution(b: GraphBuilder, x: Value, kernel: int, stride: int) -> Value:
    weight = b.constant(RNG.standard_normal((32, 16, kernel, kernel)).astype(np.float32))
    edge = (kernel // 2,) * 4
    return b.one(Relu(), b.one(Conv((stride, stride), edge, (1, 1), 1), x, weight))


def check(outputs: list[Value], x: Value) -> NativeExecutable:
    names = tuple(f"y{n}" for n in range(len(outputs)))
    graph = Graph((x,), tuple(outputs), names)  # type: ignore[arg-type]
    given: Array = RNG.standard_normal(x.tensor_type.shape).astype(np.float32)
    return check_native(graph, (given,), str(graph))


def kernels(executable: NativeExecutable) -> int:
    (segment,) = executable.segments
    return len(segment.image.calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("stride", [1, 2])
def test_a_product_takes_either_layout_as_it_is(stride: int) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((1, 16, 32, 16), f32))
    assert kernels(check([convolution(b, x, 1, stride)], x)) == 1
    x = b.input("x", TensorType((1, 32, 16, 16), f32))
    y = b.one(LAST, convolution(b, b.one(FIRST, x), 1, stride))
    assert kernels(check([y], x)) == 1


def test_windows_write_the_callers_array() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((1, 9, 8, 16), f32))
    y = b.one(LAST, convolution(b, b.one(FIRST, x), 3, 1))
    assert kernels(check([y], x)) == 2  # a border around x, the windows


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_on_planes_need_no_border(stride: int) -> None:
    """The caller's pixels are vectors: they are read where they lie, without zeros around them."""
    b = GraphBuilder()
    x = b.input("x", TensorType((1, 9, 8, 16), f32))
    weight = b.constant(RNG.standard_normal((16, 1, 3, 3)).astype(np.float32))
    plain = b.one(Conv((stride, stride), (1,) * 4, (1, 1), 16), b.one(FIRST, x), weight)
    assert kernels(check([b.one(LAST, b.one(Relu(), plain))], x)) == 1


def test_outputs_that_share_a_value() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((1, 9, 8, 16), f32))
    y = convolution(b, b.one(FIRST, x), 3, 1)
    check([b.one(LAST, y), b.one(LAST, y), y], x)
    check([b.one(LAST, y), b.one(Transpose((0, 1, 3, 2)), y)], x)
    check([b.one(LAST, y), b.one(LAST, convolution(b, b.one(FIRST, x), 1, 1))], x)


def test_an_output_that_is_read_again() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((1, 9, 8, 16), f32))
    y = convolution(b, b.one(FIRST, x), 3, 1)
    narrow = b.constant(RNG.standard_normal((16, 32, 1, 1)).astype(np.float32))
    z = b.one(Conv((1, 1), (0,) * 4, (1, 1), 1), y, narrow)
    check([b.one(LAST, y), b.one(LAST, z)], x)
