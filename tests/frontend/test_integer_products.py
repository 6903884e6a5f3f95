"""Products of integers in ONNX models are exact, in the interpreter and as native code.

Not compared with ONNX Runtime: on processors without instructions for such products, its sums
saturate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.frontend.test_onnx_elementwise import codes, one_node, reals
from whet.api.engines import default_engine
from whet.core.types import Array
from whet.integrate.onnx_backend import run_model


def results(op: str, *arrays: Any, **attributes: Any) -> Iterator[Array]:
    """What a node gives, in the interpreter and as native code."""
    given = [np.asarray(a) for a in arrays]
    model = one_node(op, 10, given, **attributes)
    for engine in (None, default_engine()):
        (got,) = run_model(model, given, engine=engine)
        yield got


def centered(codes: Array, zero: Any = 0) -> Array:
    return codes.astype(np.int64) - np.asarray(zero, np.int64)


def exact_windows(
    x: Array, w: Array, group: int, pads: Sequence[int], strides: Sequence[int] = (1, 1)
) -> Array:
    """A convolution of integers, one number after the other; padding is zero."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    outputs, depth, high, wide = w.shape
    size = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], (high, wide), strides)]
    found = np.zeros((len(x), outputs, *size), np.int64)
    for n, c, i, j in np.ndindex(found.shape):
        first = c // (outputs // group) * depth
        at = x[n, first : first + depth, i * strides[0] :, j * strides[1] :]
        found[n, c, i, j] = (at[:, :high, :wide] * w[c]).sum()
    return found


@pytest.mark.parametrize("depth", [4, 37])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_integer_products(kind: Any, depth: int) -> None:
    a, b = codes(np.uint8, 3, depth), codes(kind, depth, 5, seed=1)
    a[0], b[:, 0] = 255, np.iinfo(kind).min  # as large as products become
    zeros = np.array([1, 2, 3, 4, 5], kind)
    for got in results("MatMulInteger", a, b):
        np.testing.assert_array_equal(got, centered(a) @ centered(b))
        assert got.dtype == np.int32
    for got in results("MatMulInteger", a, b, np.uint8(7), zeros):
        np.testing.assert_array_equal(got, centered(a, 7) @ centered(b, zeros))
    for got in results("MatMulInteger", a[0], b, np.uint8(7)):
        np.testing.assert_array_equal(got, centered(a[0], 7) @ centered(b))


def test_integer_convolutions() -> None:
    x, w = codes(np.uint8, 1, 4, 7, 6), codes(np.uint8, 6, 2, 3, 3, seed=1)
    window = {"strides": [2, 1], "pads": [1, 0, 1, 2], "group": 2}
    for got in results("ConvInteger", x, w, np.uint8(9), np.uint8(100), **window):
        np.testing.assert_array_equal(
            got, exact_windows(centered(x, 9), centered(w, 100), **window)
        )


def check_codes(got: Array, exact: Array) -> None:
    """The nearest codes; what lies between two may be either, within the rounding of f32."""
    assert got.dtype == np.uint8
    off = np.abs(got.astype(np.float64) - np.clip(exact, 0, 255))
    assert off.max() <= 0.5 + 1e-3


def test_quantized_products() -> None:
    a, b = codes(np.uint8, 3, 4), codes(np.uint8, 4, 5, seed=1)
    scales = [np.float32(s) for s in (0.02, 0.03, 0.9)]
    total = centered(a, 113) @ centered(b, 114)
    for got in results("QLinearMatMul", a, scales[0], np.uint8(113), b, scales[1],
                       np.uint8(114), scales[2], np.uint8(118)):  # fmt: skip
        check_codes(got, total * (0.02 * 0.03 / 0.9) + 118)


def test_quantized_convolutions() -> None:
    x, w = codes(np.uint8, 1, 4, 7, 6), codes(np.int8, 6, 2, 3, 3, seed=1)
    per_channel, bias = reals(6, low=0.001, high=0.01), np.arange(6, dtype=np.int32) * 100
    window = {"group": 2, "pads": [1, 1, 1, 1]}
    total = exact_windows(centered(x, 120), centered(w), **window) + bias[:, None, None]
    exact = total * (0.02 / 0.9) * per_channel.astype(np.float64)[:, None, None] + 100
    for got in results(
        "QLinearConv", x, np.float32(0.02), np.uint8(120), w, per_channel, np.zeros(6, np.int8),
        np.float32(0.9), np.uint8(100), bias, **window,
    ):  # fmt: skip
        check_codes(got, exact)
