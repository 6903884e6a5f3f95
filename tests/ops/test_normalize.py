"""Softmax and normalizations through the ONNX front end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from whet.core.dtypes import f32
from whet.core.errors import OperatorError, UnsupportedError
from whet.core.types import TensorType
from whet.ops.normalize import GroupNorm
from whet.ops.softmax import Softmax

RNG = np.random.default_rng(6)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax(name: str, axis: int, same_as_onnxruntime: Callable[..., None]) -> None:
    x = normal(2, 3, 4)
    same_as_onnxruntime(name, [x], opset=13, axis=axis)
    same_as_onnxruntime(name, [x], opset=11, axis=axis)
    same_as_onnxruntime(name, [x], opset=13)
    same_as_onnxruntime(name, [x], opset=11)


def test_softmax_of_large_numbers() -> None:
    x = np.array([[1e4, 1e4], [-1e4, 1e4]], np.float32)
    np.testing.assert_allclose(Softmax(1).run_reference((x,))[0], [[0.5, 0.5], [0, 1]])


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3), (2, 3, 4)])
def test_batch_norm(shape: tuple[int, ...], same_as_onnxruntime: Callable[..., None]) -> None:
    parameters = [normal(3), normal(3), normal(3), RNG.uniform(0.1, 2, 3).astype(np.float32)]
    same_as_onnxruntime("BatchNormalization", [normal(*shape), *parameters], epsilon=1e-3)
    same_as_onnxruntime("BatchNormalization", [normal(*shape), *parameters], opset=9)


def test_batch_norm_in_training(whet_node: Callable[..., list]) -> None:
    x, scale, bias, mean = normal(4, 3, 5), normal(3), normal(3), normal(3)
    var = RNG.uniform(0.1, 2, 3).astype(np.float32)
    y, new_mean, new_var = whet_node("BatchNormalization", [x, scale, bias, mean, var], opset=15,
                                     outputs=3, training_mode=1, momentum=0.8)  # fmt: skip
    current, spread = x.mean((0, 2)), x.var((0, 2))
    column = (slice(None), None)
    expected = (x - current[column]) / np.sqrt(spread[column] + 1e-5)
    np.testing.assert_allclose(y, expected * scale[column] + bias[column], atol=1e-5)
    np.testing.assert_allclose(new_mean, 0.8 * mean + 0.2 * current, rtol=1e-5)
    np.testing.assert_allclose(new_var, 0.8 * var + 0.2 * spread, rtol=1e-5)


def test_old_training_outputs_are_refused(whet_node: Callable[..., list]) -> None:
    with pytest.raises(UnsupportedError, match="WH2002"):
        whet_node("BatchNormalization", [normal(4, 3), *(np.ones(3, np.float32),) * 4], opset=9,
                  outputs=3)  # fmt: skip


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("outputs", [1, 3])
def test_layer_norm(axis: int, outputs: int, same_as_onnxruntime: Callable[..., None]) -> None:
    x = normal(2, 3, 4)
    tail = x.shape[axis:]
    same_as_onnxruntime("LayerNormalization", [x, normal(*tail), normal(*tail)], opset=17,
                        outputs=outputs, axis=axis)  # fmt: skip
    same_as_onnxruntime("LayerNormalization", [x, normal(*tail)], opset=17, axis=axis)


def test_layer_norm_rounds_half_precision_once(whet_node: Callable[..., list]) -> None:
    x, scale = normal(4, 64).astype(np.float16), np.full(64, 100, np.float16)
    (y,) = whet_node("LayerNormalization", [x, scale], opset=17)
    wide = x.astype(np.float64)
    exact = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * 100
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=2**-10)


def test_instance_norm(same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime("InstanceNormalization", [normal(2, 3, 4, 5), normal(3), normal(3)],
                        epsilon=1e-2)  # fmt: skip


def test_group_norm_scales_groups_or_channels(whet_node: Callable[..., list]) -> None:
    x, scale, bias = normal(2, 6, 5), normal(3), normal(3)
    (per_group,) = whet_node("GroupNormalization", [x, scale, bias], opset=18, num_groups=3)
    repeated = [x, scale.repeat(2), bias.repeat(2)]
    (per_channel,) = whet_node("GroupNormalization", repeated, opset=21, num_groups=3)
    groups = x.reshape(2, 3, -1)
    centred = groups - groups.mean(2, keepdims=True)
    exact = (centred / np.sqrt(groups.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
    exact = exact * scale.repeat(2)[:, None] + bias.repeat(2)[:, None]
    np.testing.assert_allclose(per_group, exact, atol=1e-5)
    np.testing.assert_allclose(per_channel, exact, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size: int, same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime("LRN", [normal(2, 7, 3, 3)], size=size, alpha=0.1, beta=0.6, bias=1.5)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p: int, same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime("LpNormalization", [normal(3, 4)], axis=0, p=p)


def test_vectors_of_zeros_stay_zero(whet_node: Callable[..., list]) -> None:
    (y,) = whet_node("LpNormalization", [np.zeros((2, 3), np.float32)], opset=22)
    np.testing.assert_array_equal(y, 0)


def test_mean_variance_normalization(same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime("MeanVarianceNormalization", [normal(2, 3, 4, 4)], opset=13)


def test_groups_must_divide_channels() -> None:
    channel = TensorType((4,), f32)
    with pytest.raises(OperatorError, match="3 groups of 4 channels") as error:
        GroupNorm(3).infer_types((TensorType((1, 4, 2), f32), channel, channel))
    assert error.value.code == "WH1104"
