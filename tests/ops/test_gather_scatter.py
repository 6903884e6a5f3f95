"""Reading and writing by index, and choosing by value, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from whet.core.dtypes import f16, f32, i64
from whet.core.errors import OperatorError
from whet.core.types import TensorType
from whet.ir.interpreter import run
from whet.ops.base import Op
from whet.ops.gather import Gather, GatherElements, GatherNd, OneHot
from whet.ops.scatter import ScatterElements, ScatterNd, TensorScatter
from whet.ops.select import ReverseSequence, TopK

Compare = Callable[..., None]
X = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("seed", range(8))
def test_gather(seed: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(seed)
    axis = seed % 3
    n = X.shape[axis]
    places = rng.integers(-n, n, (2, 3)[: seed % 3])
    same_as_onnxruntime("Gather", [X, places], axis=axis - 3 * (seed % 2))
    own = rng.integers(-n, n, [int(rng.integers(1, d + 1)) for d in X.shape])
    same_as_onnxruntime("GatherElements", [X, own.astype(np.int32)], axis=axis)


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("named", [1, 2, 3])
def test_gather_nd(batch: int, named: int, same_as_onnxruntime: Compare) -> None:
    if batch + named > 3:
        return
    rng = np.random.default_rng(batch + 3 * named)
    places = rng.integers(-3, 3, (*X.shape[:batch], 2, named))
    same_as_onnxruntime("GatherND", [X, places], batch_dims=batch)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int, same_as_onnxruntime: Compare) -> None:
    indices = np.array([[0, 3, -1], [7, -9, 2]])
    depth = ("constant", np.array([4], np.int64))
    values = np.array([0.5, 2.0], np.float32)
    same_as_onnxruntime("OneHot", [indices, depth, values], axis=axis)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter(reduction: str, axis: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(axis + 1)
    shape = (2, 3, 4)
    updates = rng.standard_normal(shape).astype(np.float32)
    # Repeated positions have a defined result only with a reduction.
    n = X.shape[axis]
    order = np.argsort(rng.random((2, 3, n) if axis == -1 else (2, n, 4) if axis else (n, 3, 4)),
                       axis=axis)  # fmt: skip
    distinct = order[:2, :3, :4] - n * (rng.random(shape) < 0.3)
    repeated = rng.integers(-n, n, shape)
    indices = distinct if reduction == "none" else repeated
    same_as_onnxruntime("ScatterElements", [X, indices, updates], axis=axis, reduction=reduction)
    places = np.array([[0, 1], [2, -1], [1, 3]] if reduction == "none" else [[0, 1]] * 3)
    slices = rng.standard_normal((3, 5)).astype(np.float32)
    same_as_onnxruntime("ScatterND", [X, places, slices], reduction=reduction)


def test_half_precision_is_summed_in_f32() -> None:
    op = ScatterElements(0, "add")
    x, one = np.array([2048], np.float16), np.ones(4, np.float16)
    arrays = (x, np.zeros(4, np.int64), one)
    types = (TensorType((1,), f16), TensorType((4,), i64), TensorType((4,), f16))
    # Rounding after every addition would stay at 2048.
    assert op.run_reference(arrays)[0].item() == 2052
    assert run(op.program(*types), arrays)[0].item() == 2052


def test_the_last_of_repeated_updates_stays() -> None:
    arrays = (np.zeros(3, np.float32), np.array([1, 1]), np.array([5, 6], np.float32))
    types = (TensorType((3,), f32), TensorType((2,), i64), TensorType((2,), f32))
    assert run(ScatterElements(0).program(*types), arrays)[0].tolist() == [0, 6, 0]
    assert ScatterElements(0).run_reference(arrays)[0].tolist() == [0, 6, 0]


@pytest.mark.parametrize("seed", range(12))
def test_top_k(seed: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(seed)
    axis = seed % 3
    k = ("constant", np.array([int(rng.integers(1, X.shape[axis] + 1))]))
    x = rng.integers(0, 4, X.shape).astype(np.float32)  # many equal elements
    for values in (x, x.astype(np.int64)):
        same_as_onnxruntime("TopK", [values, k], outputs=2, axis=axis, largest=seed % 2)


def test_top_k_orders_nan_and_extreme_integers() -> None:
    x = np.array([1.0, np.nan, 3.0, np.nan], np.float32)
    for largest, expected in ((True, [1, 3, 2]), (False, [0, 2, 1])):
        op = TopK(0, 3, largest)
        assert op.run_reference((x,))[1].tolist() == expected
        assert run(op.program(TensorType((4,), f32)), (x,))[1].tolist() == expected
    low = np.array([np.iinfo(np.int64).min, 0, np.iinfo(np.int64).max])
    assert TopK(0, 3).run_reference((low,))[1].tolist() == [2, 1, 0]


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
def test_reverse_sequence(time: int, batch: int, same_as_onnxruntime: Compare) -> None:
    lengths = np.array([1, 3, 2, 2][: X.shape[batch]])
    same_as_onnxruntime("ReverseSequence", [X, lengths], time_axis=time, batch_axis=batch)


def test_circular_cache_goes_on_from_its_front() -> None:
    cache, update = np.zeros((1, 4, 1), np.float32), np.ones((1, 3, 1), np.float32)
    arrays = (cache, update, np.array([3]))
    assert TensorScatter(1, circular=True).run_reference(arrays)[0].ravel().tolist() == [1, 1, 0, 1]
    with pytest.raises(OperatorError, match="outside"):
        TensorScatter(1).run_reference(arrays)


@pytest.mark.parametrize("op", [Gather(0), GatherElements(0), GatherNd()])
def test_an_index_outside_is_an_error(op: Op) -> None:
    with pytest.raises(OperatorError) as caught:
        op.run_reference((np.zeros(3, np.float32), np.array([3])))
    assert caught.value.code == "WH1302"


@pytest.mark.parametrize(
    ("op", "types", "problem"),
    [
        (Gather(2), [((2, 3), f32), ((1,), i64)], "outside the rank"),
        (Gather(0), [((2, 3), f32), ((1,), f32)], "i32 or i64"),
        (GatherElements(0), [((2, 3), f32), ((2, 4), i64)], "beyond the input"),
        (GatherNd(1), [((2, 3), f32), ((3, 1), i64)], "batch extents differ"),
        (GatherNd(), [((2, 3), f32), ((1, 3), i64)], "exceed the rank"),
        (OneHot(3, 2), [((2,), i64), ((2,), f32)], "out of range"),
        (OneHot(0, 2), [((2,), i64), ((3,), f32)], "two elements"),
        (ScatterElements(0), [((3,), f32), ((2,), i64), ((3,), f32)], "updates must have shape"),
        (ScatterNd(), [((3,), f32), ((2, 1), i64), ((2,), i64)], "element types differ"),
        (TopK(0, 4), [((3,), f32)], "exceeds axis"),
        (ReverseSequence(0, 0), [((3, 3), f32), ((3,), i64)], "do not fit the rank"),
    ],
)
def test_misuse_is_refused(
    op: Op, types: list[tuple[tuple[int, ...], object]], problem: str
) -> None:
    with pytest.raises(OperatorError, match=problem):
        op.infer_types(tuple(TensorType(s, d) for s, d in types))  # type: ignore[arg-type]
