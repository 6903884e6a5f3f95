"""Reductions, arg-reductions and running sums through the ONNX front end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from whet.core.dtypes import f32
from whet.core.errors import OperatorError
from whet.core.types import TensorType
from whet.ops.reduce import ArgMax, ReduceSum

RNG = np.random.default_rng(5)
SIMPLE = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"]
COMPOSITE = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]


@pytest.mark.parametrize("name", SIMPLE + COMPOSITE)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes_as_attribute(
    name: str, keepdims: int, same_as_onnxruntime: Callable[..., None]
) -> None:
    x = RNG.uniform(0.1, 2, (2, 3, 4)).astype(np.float32)
    same_as_onnxruntime(name, [x], opset=11, axes=[-1, 0], keepdims=keepdims)
    same_as_onnxruntime(name, [x], opset=11, keepdims=keepdims)


@pytest.mark.parametrize("name", SIMPLE + COMPOSITE)
def test_axes_as_input(name: str, same_as_onnxruntime: Callable[..., None]) -> None:
    x = RNG.uniform(0.1, 2, (2, 3, 4)).astype(np.float32)
    same_as_onnxruntime(name, [x, ("constant", np.array([1, -1]))], opset=18)
    same_as_onnxruntime(name, [x], opset=18, keepdims=0)


@pytest.mark.parametrize("name", SIMPLE)
def test_no_axes_can_mean_nothing_to_do(name: str, whet_node: Callable[..., list]) -> None:
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    (y,) = whet_node(name, [x], opset=18, noop_with_empty_axes=1)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_other_types(name: str, dtype: type, same_as_onnxruntime: Callable[..., None]) -> None:
    x = RNG.integers(-5, 6, (3, 4)).astype(dtype)
    same_as_onnxruntime(name, [x, ("constant", np.array([1]))], opset=18)


def test_log_sum_exp_neither_overflows_nor_loses_infinities(
    whet_node: Callable[..., list],
) -> None:
    x = np.array([[1000, 1000], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    (y,) = whet_node("ReduceLogSumExp", [x, ("constant", np.array([1]))], opset=18, keepdims=0)
    np.testing.assert_allclose(y, [1000 + np.log(2), -np.inf, np.inf])


@pytest.mark.parametrize(
    ("name", "neutral"),
    [("ReduceSum", 0), ("ReduceProd", 1), ("ReduceMax", -np.inf), ("ReduceMin", np.inf)],
)
def test_nothing_to_reduce(name: str, neutral: float, whet_node: Callable[..., list]) -> None:
    x = np.zeros((2, 0, 3), np.float32)
    (y,) = whet_node(name, [x, ("constant", np.array([1]))], opset=20, keepdims=0)
    np.testing.assert_array_equal(y, np.full((2, 3), neutral, np.float32))


def test_half_precision_sums_do_not_stall() -> None:
    x = np.ones((1, 4096), np.float16)
    assert ReduceSum((1,)).run_reference((x,))[0] == 4096


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions(name: str, last: int, same_as_onnxruntime: Callable[..., None]) -> None:
    x = RNG.integers(0, 3, (4, 6)).astype(np.float32)
    same_as_onnxruntime(name, [x], opset=13, axis=-1, select_last_index=last)
    same_as_onnxruntime(name, [x], opset=13, axis=0, keepdims=0, select_last_index=last)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sum(
    exclusive: int, reverse: int, same_as_onnxruntime: Callable[..., None]
) -> None:
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    axis = ("constant", np.array(-2))
    same_as_onnxruntime("CumSum", [x, axis], opset=14, exclusive=exclusive, reverse=reverse)


def test_wrong_axes_are_refused() -> None:
    x = TensorType((2, 3), f32)
    for op in (ReduceSum((2,)), ReduceSum((1, 0)), ArgMax(2)):
        with pytest.raises(OperatorError) as error:
            op.infer_types((x,))
        assert error.value.code == "WH1104"
