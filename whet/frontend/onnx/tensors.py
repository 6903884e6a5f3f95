"""ONNX tensors to NumPy arrays.

What a tensor claims (type, dimensions) is compared with the data that is really there before
any memory is allocated for it: a damaged file cannot ask for more than its own size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from whet.core import dtypes
from whet.core.dtypes import DType
from whet.core.errors import ModelError, check, fail
from whet.core.types import MAX_ELEMENTS, Array
from whet.frontend.onnx.external import ExternalData

MAX_RANK = 32
MAX_DENSE_BYTES = 256 << 20
"""A sparse tensor is made dense only up to this size."""

FROM_ONNX: dict[int, DType] = {
    1: dtypes.f32,
    2: dtypes.u8,
    3: dtypes.i8,
    4: dtypes.u16,
    5: dtypes.i16,
    6: dtypes.i32,
    7: dtypes.i64,
    9: dtypes.bool_,
    10: dtypes.f16,
    11: dtypes.f64,
    12: dtypes.u32,
    13: dtypes.u64,
    16: dtypes.bf16,
    17: dtypes.f8e4m3fn,
    18: dtypes.f8e4m3fnuz,
    19: dtypes.f8e5m2,
    20: dtypes.f8e5m2fnuz,
    21: dtypes.u4,
    22: dtypes.i4,
    23: dtypes.f4e2m1,
    24: dtypes.f8e8m0,
    25: dtypes.u2,
    26: dtypes.i2,
}
"""Element types by their number in the ONNX format (TensorProto.DataType)."""

_TYPED_FIELDS: dict[DType, str] = {
    dtypes.f32: "float_data",
    dtypes.f64: "double_data",
    dtypes.i64: "int64_data",
    dtypes.u64: "uint64_data",
    dtypes.u32: "uint64_data",
}
"""Where elements are stored one by one; all other types use `int32_data`."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A value that whet has no type for (strings, complex numbers, maps).

    It may exist in a model; only a node that reads it is unsupported.
    """

    reason: str


def onnx_type_name(number: int) -> str:
    """The format's own name of an element type, for messages."""
    kinds: Any = onnx.TensorProto.DataType
    names = {v: k for k, v in kinds.items()}
    return str(names.get(number, f"element type {number}")).lower()


def read_tensor(tensor: Any, external: ExternalData) -> Array | Foreign:
    """The array behind a TensorProto, `Foreign` if its element type has no counterpart."""
    dtype = FROM_ONNX.get(tensor.data_type)
    if dtype is None:
        return Foreign(f"{onnx_type_name(tensor.data_type)} tensors are not supported")
    shape = check_dims(f"tensor '{tensor.name}'", tensor.dims)
    count = math.prod(shape)
    _check(not tensor.HasField("segment"), f"tensor '{tensor.name}' is a segment of another")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        entries = {e.key: e.value for e in tensor.external_data}
        data: Any = external.read(tensor.name, entries, packed_bytes(count, dtype))
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
    else:
        return _from_typed_field(tensor, dtype, count).reshape(shape)
    _check(
        len(data) == packed_bytes(count, dtype),
        f"tensor '{tensor.name}' of type {dtype}{list(shape)} needs "
        f"{packed_bytes(count, dtype)} bytes and has {len(data)}",
    )
    return _from_bytes(data, dtype, count).reshape(shape)


def check_dims(what: str, dims: Any) -> tuple[int, ...]:
    """The dimensions as a shape; `WH2006` if no machine could hold such a tensor."""
    shape = tuple(int(d) for d in dims)
    _check(all(d >= 0 for d in shape), f"{what} has the negative size {list(shape)}")
    check(
        len(shape) <= MAX_RANK and math.prod(max(d, 1) for d in shape) <= MAX_ELEMENTS,
        "WH2006",
        f"{what} has the impossible shape {_shorten(shape)}",
        kind=ModelError,
    )
    return shape


def packed_bytes(count: int, dtype: DType) -> int:
    """Bytes of `count` elements in a file, where small types share a byte."""
    return -(-count * dtype.bits // 8)


def _from_bytes(data: Any, dtype: DType, count: int) -> Array:
    if dtype.bits >= 8:
        if dtype == dtypes.bool_:  # any non-zero byte means true, NumPy allows 0 and 1 only
            return np.frombuffer(data, np.uint8) != 0
        return np.frombuffer(data, dtype.numpy)
    return _unpacked(np.frombuffer(data, np.uint8), dtype, count)


def _unpacked(packed: Array, dtype: DType, count: int) -> Array:
    """Elements of 4 or 2 bits, the first in the lowest bits of each byte."""
    per_byte = 8 // dtype.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * dtype.bits
    fields = ((packed[:, None] >> shifts) & ((1 << dtype.bits) - 1)).reshape(-1)[:count]
    if dtype.kind == "int":
        sign = 1 << (dtype.bits - 1)
        return ((fields.astype(np.int8) ^ sign) - sign).astype(dtype.numpy)
    return fields.view(dtype.numpy) if dtype.is_float else fields.astype(dtype.numpy)


def _from_typed_field(tensor: Any, dtype: DType, count: int) -> Array:
    field = _TYPED_FIELDS.get(dtype, "int32_data")
    stored = getattr(tensor, field)
    needed = packed_bytes(count, dtype) if dtype.bits < 8 else count
    _check(
        len(stored) == needed,
        f"tensor '{tensor.name}' of type {dtype}{list(tensor.dims)} needs {needed} elements "
        f"and has {len(stored)}",
    )
    if field != "int32_data":
        return np.array(stored, _TYPED_STORAGE[field]).astype(dtype.numpy, copy=False)
    integers = np.array(stored, np.int32)
    if dtype == dtypes.bool_:
        return integers != 0
    if dtype.bits < 8:
        return _unpacked(integers.astype(np.uint8), dtype, count)
    if dtype.is_float:  # the bit patterns, one per integer
        bits = integers.astype(np.uint16 if dtype.bits == 16 else np.uint8)
        return bits.view(dtype.numpy)
    return integers.astype(dtype.numpy)


_TYPED_STORAGE: dict[str, Any] = {
    "float_data": np.float32,
    "double_data": np.float64,
    "int64_data": np.int64,
    "uint64_data": np.uint64,
}


def read_sparse(sparse: Any, external: ExternalData) -> Array | Foreign:
    """The dense array behind a SparseTensorProto."""
    name = sparse.values.name
    values = read_tensor(sparse.values, external)
    indices = read_tensor(sparse.indices, external)
    if isinstance(values, Foreign):
        return values
    shape = check_dims(f"sparse tensor '{name}'", sparse.dims)
    count = math.prod(shape)
    check(
        count * values.itemsize <= MAX_DENSE_BYTES,
        "WH2006",
        f"sparse tensor '{name}' of shape {list(shape)} is too large to be made dense",
        kind=ModelError,
    )
    good = not isinstance(indices, Foreign) and indices.dtype == np.int64 and values.ndim == 1
    _check(good, f"sparse tensor '{name}' has no list of values with 64-bit indices")
    assert not isinstance(indices, Foreign)
    if indices.ndim == 2 and indices.shape == (len(values), len(shape)):
        _check(
            bool(np.all((indices >= 0) & (indices < np.array(shape, np.int64)))),
            f"sparse tensor '{name}' has indices outside its shape",
        )
        indices = np.asarray(np.ravel_multi_index(tuple(indices.T), shape))
    _check(
        indices.shape == values.shape and bool(np.all((indices >= 0) & (indices < count))),
        f"sparse tensor '{name}' has indices that do not fit its values and shape",
    )
    dense = np.zeros(count, values.dtype)
    dense[indices] = values
    return dense.reshape(shape)


def _shorten(shape: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, shape[:8]))
    return f"[{shown}{', ...' if len(shape) > 8 else ''}]"


def _check(condition: bool, message: str) -> None:
    if not condition:
        fail("WH2003", message, kind=ModelError)
