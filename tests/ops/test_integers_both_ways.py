"""Integers where both engines must mean the same: means, interpolated values, types that only
store."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import native
from whet.core.dtypes import DType, f4e2m1, i4, i8, i16, i32, i64, u2, u4, u8, u16, u64
from whet.core.types import TensorType
from whet.graph.graph import Graph, apply, make_input
from whet.graph.interpret import interpret
from whet.ops.reduce import ReduceMean
from whet.ops.resize import Resize


@pytest.mark.parametrize("dtype", [i8, i16, i32, i64, u8, u64])
def test_means_of_large_integers(dtype: DType) -> None:
    x = make_input("x", TensorType((3, 5), dtype))
    graph = Graph((x,), apply(ReduceMean((1,), False), x), ("y",))
    info = np.iinfo(dtype.numpy)
    rows = [[info.max] * 5, [info.max, 0, 0, 0, 0], [info.min, 3, -4 if info.min else 4, 0, 0]]
    values = np.array(rows, dtype.numpy)
    (interpreted,), (compiled,) = interpret(graph, (values,)), native(graph)((values,))
    np.testing.assert_array_equal(interpreted, compiled)
    assert int(interpreted[1]) == int(info.max) // 5
    if dtype.bits < 64:  # nothing wraps around
        assert interpreted.tolist() == [int(sum(map(int, row)) / 5) for row in values]


def test_means_of_more_elements_than_the_type_counts() -> None:
    x = make_input("x", TensorType((2, 300), i8))
    graph = Graph((x,), apply(ReduceMean((1,), False), x), ("y",))
    values = np.random.default_rng(1).integers(-128, 128, (2, 300)).astype(np.int8)
    expected = [int(row.sum(dtype=np.int64) / 300) for row in values]
    assert interpret(graph, (values,))[0].tolist() == expected
    assert native(graph)((values,))[0].tolist() == expected


@pytest.mark.parametrize("dtype", [u8, i8, u16, i32])
@pytest.mark.parametrize("scale", [1.25, 2.0, 3.0, 7 / 3])
def test_a_plain_image_stays_what_it_is(dtype: DType, scale: float) -> None:
    new = (1, int(3 * scale), int(5 * scale))
    x = make_input("x", TensorType((1, 3, 5), dtype))
    op = Resize(new, (1.0, scale, scale), mode="linear")
    graph = Graph((x,), apply(op, x), ("y",))
    for value in (0, 3, 5, 97, np.iinfo(dtype.numpy).max, np.iinfo(dtype.numpy).min):
        image = np.full((1, 3, 5), value, dtype.numpy)
        for (result,) in (interpret(graph, (image,)), native(graph)((image,))):
            assert set(np.asarray(result).reshape(-1).tolist()) == {int(value)}


@pytest.mark.parametrize("dtype", [i4, u4, u2, f4e2m1])
def test_types_that_only_store_are_copied_byte_by_byte(dtype: DType) -> None:
    x = make_input("x", TensorType((3, 37), dtype))
    graph = Graph((x,), (x,), ("y",))
    values = np.random.default_rng(0).integers(0, 3, (3, 37)).astype(dtype.numpy)
    (result,) = native(graph)((values,))
    np.testing.assert_array_equal(result.view(np.uint8), values.view(np.uint8))
