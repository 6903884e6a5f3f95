"""Quantization: rounding, ranges, granularity and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whet.core.dtypes import DType, f8e4m3fn, f16, f32, i2, i4, i8, i16, u2, u4, u8, u16
from whet.core.errors import OperatorError
from whet.core.types import Array, TensorType
from whet.ops.quantize import DequantizeLinear, QuantizeLinear


def quantize(op: QuantizeLinear, *arrays: Any) -> Array:
    return op.run_reference(tuple(np.asarray(a) for a in arrays))[0]


@pytest.mark.parametrize(("dtype", "low", "high"), [
    (u8, 0, 255), (i8, -128, 127), (u16, 0, 65535), (i16, -32768, 32767),
    (u4, 0, 15), (i4, -8, 7), (u2, 0, 3), (i2, -2, 1),
])  # fmt: skip
def test_values_out_of_range_saturate(dtype: DType, low: int, high: int) -> None:
    x = np.float32([-1e9, 1e9, -np.inf, np.inf])
    result = quantize(QuantizeLinear(), x, np.float32(1), np.array(0, dtype.numpy))
    assert result.astype("i8").tolist() == [low, high, low, high]


def test_halves_round_to_even_before_the_zero_point() -> None:
    x = np.float32([0.5, 1.5, 2.5, -0.5])
    assert quantize(QuantizeLinear(), x, np.float32(1), np.uint8(3)).tolist() == [3, 5, 5, 3]


def test_quotient_has_the_precision_of_the_scale() -> None:
    # 2049 / 2 is 1024.5; f16 has whole numbers only from 1024 on and rounds it to 1024.
    x, scale, zero = np.float16([2048.0, 3.0]), np.float16(1.999), np.int16(0)
    in_f16 = (x / scale).astype(np.float64)
    assert quantize(QuantizeLinear(), x, scale, zero).tolist() == np.rint(in_f16).tolist()
    exact = x.astype(np.float32) / np.float32(scale)
    precise = quantize(QuantizeLinear(precision=f32), x, scale, zero)
    assert precise.tolist() == np.rint(exact).tolist()


def test_per_axis_and_blocked_agree_with_loops() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-9, 9, (3, 5)).astype(np.float32)
    scale = rng.uniform(0.1, 1, (3, 3)).astype(np.float32)
    zero = rng.integers(0, 9, (3, 3)).astype(np.uint8)
    blocked = quantize(QuantizeLinear(axis=1, block_size=2), x, scale, zero)
    by_row = quantize(QuantizeLinear(axis=0), x, scale[:, 0], zero[:, 0])
    for i, j in np.ndindex(x.shape):
        value = np.rint(x[i, j] / scale[i, j // 2]) + zero[i, j // 2]
        assert blocked[i, j] == np.clip(value, 0, 255)
        assert by_row[i, j] == np.clip(np.rint(x[i, j] / scale[i, 0]) + zero[i, 0], 0, 255)


@pytest.mark.parametrize("dtype", [u8, i8, u16, i16, u4, i4, f8e4m3fn])
def test_there_and_back(dtype: DType) -> None:
    x = np.linspace(-3, 3, 13).astype(np.float32)
    scale, zero = np.float32(0.5), np.array(6 if dtype.kind == "uint" else 0, dtype.numpy)
    small = quantize(QuantizeLinear(), x, scale, zero)
    (back,) = DequantizeLinear(f32).run_reference((small, scale, zero))
    np.testing.assert_array_equal(back, x)


def test_result_type_of_dequantization() -> None:
    types = (TensorType((4,), i8), TensorType((), f32), TensorType((), i8))
    assert DequantizeLinear(f16).infer_types(types) == (TensorType((4,), f16),)


@pytest.mark.parametrize(("op", "types", "message"), [
    (QuantizeLinear(1), [((2, 3), f32), ((4,), f32), ((4,), u8)], r"should have shape \[3\]"),
    (QuantizeLinear(1, 2), [((2, 3), f32), ((2, 3), f32), ((2, 3), u8)], r"shape \[2, 2\]"),
    (QuantizeLinear(5), [((2, 3), f32), ((3,), f32), ((3,), u8)], "axis 5 is outside"),
    (QuantizeLinear(), [((2,), f32), ((), f32), ((), f32)], "no quantization to f32"),
    (QuantizeLinear(), [((2,), u8), ((), f32), ((), u8)], "no meaning for u8"),
    (DequantizeLinear(f32), [((2,), u8), ((), f32), ((), i8)], "zero point has another type"),
])  # fmt: skip
def test_refusals(op: Any, types: list[Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        op.infer_types(tuple(TensorType(*t) for t in types))
