"""Normalizations keep their digits where the mean is large against the deviation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.build.comparing import native
from tests.ops.conftest import node_model
from whet.core.types import Array
from whet.frontend.onnx.importer import import_model
from whet.graph.interpret import interpret

MEAN = 1000.0
ROUNDING = 4 * float(np.finfo(np.float32).eps) * MEAN
"""A few roundings of numbers as large as the mean, for a deviation of 1."""
SHAPE = (3, 4, 5, 17)


def standardized(x: Array, *axes: int, epsilon: float = 1e-5) -> Array:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axes, keepdims=True)
    return centred / np.sqrt(wide.var(axes, keepdims=True) + epsilon)


def in_groups(x: Array) -> Array:
    return standardized(x.reshape(3, 2, -1), 2).reshape(x.shape)


CASES: dict[str, tuple[Callable[[Array], Array], int, int, dict[str, object]]] = {
    "MeanVarianceNormalization": (
        lambda x: standardized(x, 0, 2, 3, epsilon=0.0), 13, 0, {}),
    "LayerNormalization": (lambda x: standardized(x, 1, 2, 3), 17, 2, {"axis": 1}),
    "InstanceNormalization": (lambda x: standardized(x, 2, 3), 13, 2, {}),
    "GroupNormalization": (in_groups, 21, 2, {"num_groups": 2}),
    "BatchNormalization": (lambda x: standardized(x, 0, 2, 3), 15, 4, {"training_mode": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_large_mean_costs_only_its_own_rounding(name: str) -> None:
    exact, opset, parameters, attributes = CASES[name]
    x = np.random.default_rng(8).normal(MEAN, 1.0, SHAPE).astype(np.float32)
    width = SHAPE[1:] if name == "LayerNormalization" else SHAPE[1:2]
    ones_and_zeros = [np.full(width, (n + 1) % 2, np.float32) for n in range(parameters)]
    outputs = 3 if name == "BatchNormalization" else 1
    model, arrays = node_model(name, [x, *ones_and_zeros], opset, outputs, attributes)
    graph = import_model(model).graph
    for run in (lambda a: interpret(graph, a), native(graph)):
        np.testing.assert_allclose(run(tuple(arrays))[0], exact(x), rtol=0, atol=ROUNDING)


def test_running_variance_in_training_keeps_its_digits() -> None:
    x = np.random.default_rng(9).normal(MEAN, 0.5, SHAPE).astype(np.float32)
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    model, arrays = node_model("BatchNormalization", [x, ones, zeros, zeros, zeros], 15, 3,
                               {"training_mode": 1, "momentum": 0.0})  # fmt: skip
    graph = import_model(model).graph
    for run in (lambda a: interpret(graph, a), native(graph)):
        _, mean, variance = run(tuple(arrays))
        np.testing.assert_allclose(mean, x.astype(np.float64).mean((0, 2, 3)), rtol=1e-6)
        np.testing.assert_allclose(variance, x.astype(np.float64).var((0, 2, 3)), rtol=1e-5)


def test_constant_channels_have_no_deviation() -> None:
    x = np.full((2, 3, 4, 4), 1234.5, np.float32)
    model, arrays = node_model("MeanVarianceNormalization", [x], 13, 1, {})
    (y,) = interpret(import_model(model).graph, arrays)
    np.testing.assert_array_equal(y, 0)


def test_axes_of_mean_variance_normalization(same_as_onnxruntime: Callable[..., None]) -> None:
    x = np.random.default_rng(10).normal(size=(2, 3, 4, 5)).astype(np.float32)
    for axes in ([1], [0, 1, 2, 3], [-1, 1], [2, 3]):
        same_as_onnxruntime("MeanVarianceNormalization", [x], opset=13, axes=axes)
