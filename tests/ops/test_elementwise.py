"""Arithmetic, logic and activations: special values, rounding and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from whet.core.dtypes import bf16, bool_, dtype_of, f16, f32, i32, u8
from whet.core.errors import OperatorError
from whet.core.types import Array, TensorType, type_of
from whet.ir.evaluate import evaluate
from whet.ir.functions import erf
from whet.ir.tensor import describe, placeholder
from whet.ops.activation import Gelu, HardSwish, Sigmoid, Softplus, Swish
from whet.ops.arithmetic import Add, Div, Maximum, Minimum, Mod, Neg, Pow, Round
from whet.ops.base import Op
from whet.ops.logic import Equal, IsInf, LogicalNot, ShiftLeft, Where


def both(op: Op, *arrays: Any) -> Array:
    """The operator's result, after its reference and its formula were found to agree."""
    given = tuple(np.asarray(a) for a in arrays)
    (expected,) = op.run_reference(given)
    types = op.infer_types(tuple(type_of(a) for a in given))
    tensors = tuple(placeholder(a.shape, dtype_of(a), f"x{n}") for n, a in enumerate(given))
    (got,) = evaluate(op.compute_tensors(tensors), dict(zip(tensors, given)))
    assert got.dtype == expected.dtype == types[0].dtype.numpy
    np.testing.assert_allclose(got.astype("f8"), expected.astype("f8"), rtol=1e-5, atol=1e-6)
    return expected


def test_erf_is_accurate_to_the_last_digits() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), [0.0, -0.0, 1e-300, np.inf, -np.inf]])
    exact = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(erf(x), exact, rtol=1e-15, atol=0)
    assert np.isnan(erf(np.array([np.nan]))).all()
    assert erf(np.float32([0.5])).dtype == np.float32


def test_integer_division_truncates() -> None:
    x, y = np.meshgrid(np.arange(-7, 8), [-3, -2, -1, 1, 2, 3])
    expected = np.trunc(x / y).astype(np.int64)
    np.testing.assert_array_equal(both(Div(), x, y), expected)


@pytest.mark.parametrize(("fmod", "x", "y", "result"), [
    (False, -7, 3, 2), (False, 7, -3, -2), (True, -7, 3, -1), (True, 7, -3, 1),
    (False, -7.5, 2.0, 0.5), (True, -7.5, 2.0, -1.5),
])  # fmt: skip
def test_remainder_signs(fmod: bool, x: float, y: float, result: float) -> None:
    assert both(Mod(fmod), np.array([x]), np.array([y])).tolist() == [result]


def test_negative_integer_powers_truncate() -> None:
    x = np.array([2, 1, -1, -1, -3, 5], np.int32)
    y = np.array([-1, -4, -3, -2, -2, 3], np.int32)
    assert both(Pow(), x, y).tolist() == [0, 1, -1, 1, 0, 125]


def test_halves_round_to_even() -> None:
    assert both(Round(), np.float32([0.5, 1.5, 2.5, -0.5, -1.5])).tolist() == [0, 2, 2, -0.0, -2]


@pytest.mark.parametrize("op", [Minimum(), Maximum()])
def test_nan_wins(op: Op) -> None:
    nan = np.float32([np.nan, 1.0, np.nan])
    assert np.isnan(both(op, nan, np.float32([1.0, np.nan, np.nan]))).all()


@pytest.mark.parametrize("op", [Sigmoid(), Softplus(), Gelu(), Gelu("tanh"), Swish(), HardSwish()])
def test_activations_do_not_overflow(op: Op) -> None:
    result = both(op, np.float32([-1e4, -90.0, 90.0, 1e4]))
    assert np.isfinite(result).all()


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_half_precision_rounds_once(dtype: Any) -> None:
    x = np.linspace(-4, 4, 101).astype(dtype.numpy)
    expected = Gelu().run_reference((x.astype(np.float32),))[0].astype(dtype.numpy)
    np.testing.assert_array_equal(both(Gelu(), x), expected)


def test_infinities_by_sign() -> None:
    x = np.float32([np.inf, -np.inf, np.nan, 1.0])
    assert both(IsInf(), x).tolist() == [True, True, False, False]
    assert both(IsInf(negative=False), x).tolist() == [True, False, False, False]
    assert both(IsInf(positive=False), x).tolist() == [False, True, False, False]
    assert not both(IsInf(False, False), x).any()


def test_where_broadcasts_and_keeps_bits() -> None:
    x = np.array([np.nan, -0.0, 3.0], np.float16)
    result = both(Where(), np.array([[True], [False]]), x, np.float16(0.0))
    assert result.shape == (2, 3)
    np.testing.assert_array_equal(result[0].view(np.uint16), x.view(np.uint16))


def test_shift_by_the_width_gives_zero() -> None:
    assert both(ShiftLeft(), np.array([255, 1], np.uint8), np.array([8, 9], np.uint8)).sum() == 0


def test_empty_and_scalar_shapes() -> None:
    assert both(Add(), np.zeros((0, 3), np.float32), np.float32(1)).shape == (0, 3)
    assert both(Neg(), np.float32(2)).shape == ()


def test_formula_reads_as_text() -> None:
    x = placeholder((2, 3), f16, "x")
    assert describe(*Add().compute_tensors((x, placeholder((3,), f16, "y")))).endswith(
        "add[i, j in 2, 3] = f16(f32(x[i, j]) + f32(y[j]))"
    )


@pytest.mark.parametrize(("op", "types", "code", "message"), [
    (Add(), [((2,), f32), ((2,), i32)], "WH1103", "element types should be i32, i32"),
    (Add(), [((2,), f32), ((3,), f32)], "WH1102", "do not broadcast"),
    (Add(), [((2,), f32)], "WH1101", "add takes x, y, got 1 values"),
    (LogicalNot(), [((2,), f32)], "WH1103", "no meaning for f32"),
    (Neg(), [((2,), u8)], "WH1103", "no meaning for u8"),
    (Equal(), [((2,), bool_), ((2,), f32)], "WH1103", "element types should be f32, f32"),
    (Where(), [((2,), f32), ((2,), f32), ((2,), f32)], "WH1103", "should be bool, f32, f32"),
])  # fmt: skip
def test_refusals(op: Op, types: list[Any], code: str, message: str) -> None:
    with pytest.raises(OperatorError) as error:
        op.infer_types(tuple(TensorType(*t) for t in types))
    assert error.value.code == code
    assert message in str(error.value)
