"""Fourier transforms, determinants, losses and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from whet.core.dtypes import f32
from whet.core.errors import OperatorError
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Result
from whet.ops.random import RandomNormal, RandomUniform
from whet.ops.signal import DFT

RNG = np.random.default_rng(9)
Run = Callable[..., list[Any]]


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_dft(parts: int, inverse: int, same_as_onnxruntime: Callable[..., None]) -> None:
    x = normal(2, 10, parts)
    same_as_onnxruntime("DFT", [x], opset=17, inverse=inverse, axis=1)
    same_as_onnxruntime("DFT", [x, ("constant", np.array(8))], opset=17, inverse=inverse, axis=1)


@pytest.mark.parametrize("length", [8, 9, 12, 13])
def test_onesided_transforms_undo_each_other(length: int, whet_node: Run) -> None:
    x = normal(2, length, 1)
    axis = ("constant", np.array(1))
    (spectrum,) = whet_node("DFT", [x, None, axis], opset=20, onesided=1)
    assert spectrum.shape == (2, length // 2 + 1, 2)
    size = ("constant", np.array(length))
    (back,) = whet_node("DFT", [spectrum, size, axis], opset=20, onesided=1, inverse=1)
    np.testing.assert_allclose(back, x, atol=1e-5)


def test_the_matrix_of_a_long_transform_is_exact() -> None:
    matrix = DFT(0, 1024).matrix(1024, 1)
    impulse = np.zeros(1024)
    impulse[1023] = 1
    expected = np.fft.fft(impulse)
    np.testing.assert_allclose(impulse @ matrix[:, 0::2], expected.real, atol=1e-12)
    np.testing.assert_allclose(impulse @ matrix[:, 1::2], expected.imag, atol=1e-12)


@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(onesided: int, same_as_onnxruntime: Callable[..., None]) -> None:
    inputs = [normal(2, 32, 1), ("constant", np.array(4)), ("constant", np.hanning(8)
              .astype(np.float32)), ("constant", np.array(8))]  # fmt: skip
    same_as_onnxruntime("STFT", inputs, opset=17, onesided=onesided)


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(name: str, periodic: int, same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime(name, [("constant", np.array(10))], opset=17, periodic=periodic)


def test_mel_filters(same_as_onnxruntime: Callable[..., None]) -> None:
    numbers = [8, 64, 8192]
    inputs = [*(("constant", np.array(n)) for n in numbers),
              *(("constant", np.array(f, np.float32)) for f in (20.0, 3000.0))]  # fmt: skip
    same_as_onnxruntime("MelWeightMatrix", inputs, opset=17)


def test_determinant(same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime("Det", [normal(2, 3, 3)], opset=11)
    same_as_onnxruntime("Det", [normal(5, 5)], opset=11)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(reduction: str, same_as_onnxruntime: Callable[..., None]) -> None:
    x, weights = normal(4, 5, 2), RNG.uniform(0.5, 2, 5).astype(np.float32)
    labels = RNG.integers(0, 5, (4, 2))
    for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        same_as_onnxruntime(name, [x, labels, weights], opset=13, reduction=reduction,
                            ignore_index=2)  # fmt: skip


def test_random_numbers(whet_node: Run) -> None:
    (y,) = whet_node("RandomUniform", [], opset=19, shape=[50, 40], low=2.0, high=3.0)
    assert y.shape == (50, 40)
    assert 2 <= y.min() < 2.1
    assert 2.9 < y.max() <= 3
    (y,) = whet_node("RandomNormalLike", [normal(50, 40)], opset=19, mean=5.0, scale=0.1)
    np.testing.assert_allclose([y.mean(), y.std()], [5, 0.1], atol=0.02)


def test_a_seed_repeats_the_numbers() -> None:
    first, again, other = (RandomUniform((8,), seed=s).run_reference(())[0] for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_random_numbers_are_neither_folded_nor_shared() -> None:
    builder = GraphBuilder()
    first, second = (builder.one(RandomNormal((4,), stream=n)) for n in (0, 1))
    assert isinstance(first, Result)
    assert first is not second


def test_draws_follow_the_probabilities(whet_node: Run) -> None:
    probabilities = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities).astype(np.float32)
    (y,) = whet_node("Multinomial", [logs], opset=19, sample_size=4000, seed=3.0)
    assert y.dtype == np.int32
    shares = np.stack([(y == n).mean(1) for n in range(3)], axis=1)
    np.testing.assert_allclose(shares, probabilities, atol=0.04)


def test_wrong_transforms_are_refused() -> None:
    for op, shape in (
        (DFT(1, 4), (4, 2)),
        (DFT(0, 0), (4, 2)),
        (DFT(0, 4, onesided=True), (4, 2)),
        (DFT(0, 4, inverse=True, onesided=True), (4, 1)),
        (DFT(0, 4), (4, 3)),
    ):
        with pytest.raises(OperatorError):
            op.infer_types((TensorType(shape, f32),))
