"""NaN and infinities among many: reductions, positions, orders, pools, rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.special.engines import (
    FLOATS,
    Both,
    assert_agree,
    both,
    draw,
    graph_of,
    on_every_target,
    planted,
)
from whet.core.cpu import CpuTarget
from whet.core.dtypes import DType, f32, f64, i32, i64, u8
from whet.core.types import Array, TensorType, type_of
from whet.ops.base import Op
from whet.ops.pool import AvgPool, MaxPool, MaxPoolIndex
from whet.ops.reduce import ArgMax, ArgMin, ReduceMax, ReduceMean, ReduceMin, ReduceSum
from whet.ops.select import TopK
from whet.ops.softmax import LogSoftmax, Softmax

NAN, INF = np.nan, np.inf
SHAPES = (((5, 67), 1), ((67, 37), 0), ((3, 33, 35), 1), ((2, 1000), 1), ((1000, 3), 0))
"""Lanes along the reduced axis and across it, whole vectors and tails, many terms and few."""


def check(op: Op, dtype: DType, target: CpuTarget, *inputs: Array) -> None:
    run = Both(graph_of(op, TensorType(inputs[0].shape, dtype)), target)
    for x in inputs:
        for got, want in run(x):
            floats = want.dtype.kind == "f"
            scale = float(np.abs(want[np.isfinite(want)]).max(initial=1.0)) if floats else 1.0
            assert_agree(got, want, f"{op} of {dtype}", relative=1e-5, absolute=1e-5 * scale)


@on_every_target
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_extremes_and_their_positions(shape: tuple[int, ...], axis: int, target: CpuTarget) -> None:
    rng = np.random.default_rng(sum(shape))
    floats = [planted(shape, few, rng, 0.02) for few in ([NAN], [INF, -INF], FLOATS)]
    ops: list[Op] = [ReduceMax((axis,)), ReduceMin((axis,))]
    ops += [kind(axis, False, last) for kind in (ArgMax, ArgMin) for last in (False, True)]
    for op in ops:
        check(op, f32, target, *floats, np.full(shape, -INF, np.float32))
        for dtype in (f64, u8):
            check(op, dtype, target, draw(dtype, shape, rng))


@on_every_target
@pytest.mark.parametrize("shape", [(4, 67), (2, 16)], ids=str)
def test_order(shape: tuple[int, ...], target: CpuTarget) -> None:
    rng = np.random.default_rng(1)
    for largest in (True, False):
        for dtype in (f32, f64, i32):
            check(TopK(1, 7, largest), dtype, target, draw(dtype, shape, rng))


def test_nan_is_the_extreme_and_the_largest() -> None:
    x = np.array([[1.0, NAN, 9.0, NAN], [-INF, 3.0, INF, 2.0]], np.float32)
    assert ArgMax(1).reference(x).tolist() == [1, 2]
    assert ArgMin(1).reference(x).tolist() == [1, 0]
    assert ArgMax(1, False, True).reference(x).tolist() == [3, 2]
    values, places = TopK(1, 3).reference(x)
    assert places.tolist() == [[1, 3, 2], [2, 1, 3]]
    assert np.isnan(values[0, :2]).all()
    assert TopK(1, 3, False).reference(x)[1].tolist() == [[0, 2, 1], [0, 3, 1]]


@on_every_target
@pytest.mark.parametrize("channels", [3, 17])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 2, 1), (2, 2, 0)])
def test_pools(channels: int, kernel: int, stride: int, pad: int, target: CpuTarget) -> None:
    rng = np.random.default_rng(channels)
    shape = (1, channels, 9, 35)
    window = ((kernel,) * 2, (stride,) * 2, (pad,) * 4, (1, 1))
    few = [planted(shape, values, rng, 0.02) for values in ([NAN], [INF, -INF])]
    many = [draw(f32, shape, rng), *(np.full(shape, v, np.float32) for v in (NAN, -INF))]
    check(MaxPool(*window), f32, target, *few, *many)
    check(MaxPoolIndex(*window), f32, target, *few, *many)
    check(AvgPool(*window), f32, target, *few)  # sums of huge numbers depend on their order


@on_every_target
def test_a_window_of_nothing_but_padding_has_no_place(target: CpuTarget) -> None:
    x = np.array([[[[0.0, 3.0]], [[2.0, 1.0]]]], np.float32)
    op = MaxPoolIndex((1, 1), (1, 1), (1, 1, 0, 1), (1, 1))
    ((got, want),) = both(graph_of(op, type_of(x)), [x], target)
    np.testing.assert_array_equal(got, want)
    assert got[0].tolist() == [[[-1] * 4, [-1, 0, 1, -1]], [[-1] * 4, [-1, 2, 3, -1]]]


@on_every_target
@pytest.mark.parametrize(("shape", "axis"), SHAPES[:3], ids=str)
def test_rows(shape: tuple[int, ...], axis: int, target: CpuTarget) -> None:
    rng = np.random.default_rng(3)
    rows = [planted(shape, few, rng, 0.02) for few in ([NAN], [INF], [-INF], [3e38, -3e38])]
    rows += [np.full(shape, value, np.float32) for value in (NAN, INF, -INF, 3e38)]
    for kind in (Softmax, LogSoftmax):
        check(kind(axis), f32, target, *rows)


@on_every_target
@pytest.mark.parametrize(("shape", "axis"), SHAPES[:3], ids=str)
def test_sums(shape: tuple[int, ...], axis: int, target: CpuTarget) -> None:
    rng = np.random.default_rng(4)
    few = ([NAN], [INF], [-INF], [INF, -INF])
    check(ReduceSum((axis,)), f32, target, *(planted(shape, v, rng, 0.01) for v in few))
    tiny = rng.integers(1, 9, shape).astype(np.float32) * np.float32(1e-45)
    ((got, want),) = both(graph_of(ReduceSum((axis,)), TensorType(shape, f32)), [tiny], target)
    np.testing.assert_array_equal(got, want)


@on_every_target
@pytest.mark.parametrize("dtype", [i32, u8, i64], ids=str)
def test_means_of_integers(dtype: DType, target: CpuTarget) -> None:
    """A mean of numbers of up to 32 bits is right whatever their sum."""
    info = np.iinfo(dtype.numpy)
    x = np.full((3, 67), info.max, dtype.numpy)
    x[1] = info.min
    x[2, ::2] = info.min
    ((got, want),) = both(graph_of(ReduceMean((1,)), TensorType(x.shape, dtype)), [x], target)
    np.testing.assert_array_equal(got, want)
    if dtype.bits <= 32:
        exact = [int(x[n].astype(np.int64).sum() / 67) for n in range(3)]
        assert got.tolist() == exact
