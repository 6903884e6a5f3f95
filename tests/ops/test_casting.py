"""Conversions of values and of bits, for all element types."""

from __future__ import annotations

import numpy as np
import pytest

from whet.core.dtypes import (
    ALL,
    DType,
    bf16,
    bool_,
    f4e2m1,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f8e8m0,
    f32,
    f64,
    i4,
    i8,
    i16,
    i32,
    u2,
    u4,
    u8,
)
from whet.core.errors import OperatorError
from whet.core.types import Array, TensorType, type_of
from whet.ir.evaluate import evaluate
from whet.ir.tensor import placeholder
from whet.ops.base import Op
from whet.ops.casting import Bitcast, Cast

NAN, INF = float("nan"), float("inf")


def convert(op: Op, x: Array) -> Array:
    """The result, after reference and formula were found to agree to the bit."""
    (expected,) = op.run_reference((x,))
    tensor = placeholder(x.shape, type_of(x).dtype, "x")
    (got,) = evaluate(op.compute_tensors((tensor,)), {tensor: x})
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.astype("f8"), expected.astype("f8"))
    return expected


@pytest.mark.parametrize("source", ALL, ids=str)
def test_every_pair_of_types(source: DType) -> None:
    x = np.array([1, 1, 1], source.numpy)  # the one number that all types have
    for to in ALL:
        assert convert(Cast(to), x).astype("f8").tolist() == [1.0, 1.0, 1.0], to


@pytest.mark.parametrize(("to", "saturate", "expected"), [
    (f8e4m3fn, True, [0.0, 0.5, 448.0, 448.0, 448.0, -448.0, NAN]),
    (f8e4m3fn, False, [0.0, 0.5, 448.0, NAN, NAN, NAN, NAN]),
    (f8e4m3fnuz, True, [0.0, 0.5, 240.0, 240.0, 240.0, -240.0, NAN]),
    (f8e4m3fnuz, False, [0.0, 0.5, NAN, NAN, NAN, NAN, NAN]),
    (f8e5m2, True, [0.0, 0.5, 448.0, 57344.0, 57344.0, -57344.0, NAN]),
    (f8e5m2, False, [0.0, 0.5, 448.0, INF, INF, -INF, NAN]),
    (f8e5m2fnuz, True, [0.0, 0.5, 448.0, 57344.0, 57344.0, -57344.0, NAN]),
    (f8e5m2fnuz, False, [0.0, 0.5, 448.0, NAN, NAN, NAN, NAN]),
])  # fmt: skip
def test_saturation(to: DType, saturate: bool, expected: list[float]) -> None:
    x = np.float32([0.0, 0.5, 448.0, 1e6, INF, -INF, NAN])
    np.testing.assert_array_equal(convert(Cast(to, saturate), x).astype("f8"), expected)


@pytest.mark.parametrize(("rounding", "expected"), [
    ("up", [1.0, 2.0, 2.0, 4.0, 2.0**-127, 2.0**127]),
    ("down", [1.0, 1.0, 1.0, 2.0, 2.0**-127, 2.0**127]),
    ("nearest", [1.0, 1.0, 2.0, 4.0, 2.0**-127, 2.0**127]),
])  # fmt: skip
def test_powers_of_two(rounding: str, expected: list[float]) -> None:
    x = np.float32([1.0, 1.25, 1.5, 3.5, 1e-45, 3e38])
    assert convert(Cast(f8e8m0, True, rounding), x).astype("f8").tolist() == expected  # type: ignore[arg-type]


def test_powers_of_two_without_saturation() -> None:
    x = np.float32([0.0, 1e-45, 2.0**-127, 2.0**127, 3e38, INF, NAN])
    result = convert(Cast(f8e8m0, False, "nearest"), x).astype("f8")
    assert np.isnan(result).tolist() == [True, True, False, False, True, True, True]


def test_integers_lose_their_upper_bits() -> None:
    assert convert(Cast(i8), np.array([200, -200, 256], np.int16)).tolist() == [-56, 56, 0]
    assert convert(Cast(u4), np.array([17, -1])).astype("i8").tolist() == [1, 15]
    assert convert(Cast(i4), np.array([9, -9])).astype("i8").tolist() == [-7, 7]


def test_floats_truncate_and_tell_truth() -> None:
    x = np.float32([-1.9, 1.9, -0.0, NAN])
    assert convert(Cast(i32), x[:3]).tolist() == [-1, 1, 0]
    assert convert(Cast(bool_), x).tolist() == [True, True, False, True]


@pytest.mark.parametrize(("source", "to"), [
    (f32, i32), (f64, f64), (bf16, i16), (u8, f8e5m2), (bool_, u8), (i4, u4), (u4, f4e2m1),
])  # fmt: skip
def test_bits_survive(source: DType, to: DType) -> None:
    x = np.arange(8).astype(source.numpy)
    there = convert(Bitcast(to), x)
    assert there.tobytes() == x.tobytes()
    if source != bool_:
        assert convert(Bitcast(source), there).tobytes() == x.tobytes()


@pytest.mark.parametrize(("source", "to", "message"), [
    (f32, f64, "another width"), (u8, bool_, "truth values"), (u4, u2, "another width"),
])  # fmt: skip
def test_bits_that_do_not_fit(source: DType, to: DType, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        Bitcast(to).infer_types((TensorType((2,), source),))
