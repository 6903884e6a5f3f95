"""Element types, tensor types, digests and errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from whet.core import dtypes
from whet.core.digest import digest_array, digest_bytes, digest_text
from whet.core.dtypes import DType, bf16, bool_, compute_dtype, dtype_of, f16, f32, f64, i4, i64, u8
from whet.core.errors import CODES, UnsupportedError, UsageError, WhetError, check, fail
from whet.core.types import TensorType, broadcast_shapes, type_of


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_types_and_storage_correspond(dtype: DType) -> None:
    assert dtypes.parse_dtype(dtype.name) is dtype
    assert dtype_of(np.zeros(2, dtype.numpy)) is dtype
    assert repr(dtype) == str(dtype) == dtype.name
    assert dtype.itemsize == max(1, dtype.bits // 8)


def test_kinds_of_types() -> None:
    assert f32.is_float
    assert not f32.is_integer
    assert u8.is_integer
    assert not bool_.is_integer
    assert i4.is_storage_only
    assert not bf16.is_storage_only
    assert [compute_dtype(d) for d in (f16, bf16, f32, f64, i64)] == [f32, f32, f32, f64, i64]


def test_byte_order_does_not_matter() -> None:
    assert dtype_of(np.zeros(1, ">f4")) is f32


def test_unknown_types_are_refused() -> None:
    with pytest.raises(UsageError, match="WH1001 unknown element type 'f31'"):
        dtypes.parse_dtype("f31")
    with pytest.raises(UsageError, match="WH1001 arrays of NumPy type 'complex128'"):
        dtype_of(np.zeros(1, complex))


def test_tensor_types() -> None:
    t = TensorType((2, 3), f32)
    assert str(t) == "f32[2, 3]"
    assert str(t.with_shape(())) == "f32[]"
    assert (t.rank, t.size, t.nbytes) == (2, 6, 24)
    assert t.with_dtype(i64) == TensorType((2, 3), i64)
    assert type_of(np.zeros((2, 3), np.float32)) == t


@pytest.mark.parametrize("shape", [(-1,), (1 << 30, 1 << 30)])
def test_impossible_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(WhetError, match="WH1107 impossible tensor shape"):
        TensorType(shape, f32)


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3).map(tuple), max_size=3))
def test_broadcasting_is_numpys(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(WhetError, match=r"WH1102 shapes .* do not broadcast"):
            broadcast_shapes(*shapes)
    else:
        assert broadcast_shapes(*shapes) == expected


def test_digests_tell_contents_apart() -> None:
    assert digest_bytes(b"ab", b"c") != digest_bytes(b"a", b"bc")
    assert digest_text("a") == digest_bytes(b"a")
    ones = np.ones((2, 3), np.float32)
    assert digest_array(ones) == digest_array(np.asfortranarray(ones))
    assert digest_array(ones) != digest_array(ones.T)
    assert digest_array(ones) != digest_array(ones.astype(np.float64))
    assert digest_array(np.zeros(2)) != digest_array(-np.zeros(2))
    assert digest_array(np.zeros((0, 2))) != digest_array(np.zeros((2, 0)))
    assert digest_array(np.float32(1)) == digest_array(np.ones((), np.float32))


def test_errors_read_well() -> None:
    error = UnsupportedError("WH2002", "two parts", details=("one", "two"), hint="wait")
    assert str(error) == "WH2002 two parts\n  one\n  two\n  hint: wait"
    assert error.exit_code == 3
    with pytest.raises(UsageError, match="WH1002 wrong"):
        fail("WH1002", "wrong", kind=UsageError)
    check(True, "WH1002", "not raised")
    with pytest.raises(AssertionError, match="WH9999"):
        check(False, "WH9999", "unlisted")


def test_codes_are_sentences() -> None:
    assert all(text.endswith(".") and text[0].isupper() for text in CODES.values())
