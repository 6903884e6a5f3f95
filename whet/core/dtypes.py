"""Element types: one value per type, with its NumPy storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from whet.core.errors import UsageError, fail

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type.  Equal names are the same type; `numpy` is how arrays of it are stored."""

    name: str
    kind: Kind
    bits: int

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def numpy(self) -> np.dtype[Any]:
        return _STORAGE[self.name]

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def itemsize(self) -> int:
        """Bytes per element in memory; sub-byte types are stored one to a byte."""
        return self.numpy.itemsize

    @property
    def is_storage_only(self) -> bool:
        """True for types that hold data but have no arithmetic of their own (fp8, int4, ...)."""
        return (self.is_float and self.bits < 16) or (self.is_integer and self.bits < 8)


f64 = DType("f64", "float", 64)
f32 = DType("f32", "float", 32)
f16 = DType("f16", "float", 16)
bf16 = DType("bf16", "float", 16)
i64 = DType("i64", "int", 64)
i32 = DType("i32", "int", 32)
i16 = DType("i16", "int", 16)
i8 = DType("i8", "int", 8)
u64 = DType("u64", "uint", 64)
u32 = DType("u32", "uint", 32)
u16 = DType("u16", "uint", 16)
u8 = DType("u8", "uint", 8)
bool_ = DType("bool", "bool", 8)
f8e4m3fn = DType("f8e4m3fn", "float", 8)
f8e4m3fnuz = DType("f8e4m3fnuz", "float", 8)
f8e5m2 = DType("f8e5m2", "float", 8)
f8e5m2fnuz = DType("f8e5m2fnuz", "float", 8)
f8e8m0 = DType("f8e8m0", "float", 8)
f4e2m1 = DType("f4e2m1", "float", 4)
i4 = DType("i4", "int", 4)
u4 = DType("u4", "uint", 4)
i2 = DType("i2", "int", 2)
u2 = DType("u2", "uint", 2)

_STORAGE: dict[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "u64": np.dtype(np.uint64),
    "u32": np.dtype(np.uint32),
    "u16": np.dtype(np.uint16),
    "u8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "i4": np.dtype(ml_dtypes.int4),
    "u4": np.dtype(ml_dtypes.uint4),
    "i2": np.dtype(ml_dtypes.int2),
    "u2": np.dtype(ml_dtypes.uint2),
}

ALL: tuple[DType, ...] = (
    f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, bool_,
    f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f4e2m1, i4, u4, i2, u2,
)  # fmt: skip
FLOATS: tuple[DType, ...] = (f32, f64, f16, bf16)
INTEGERS: tuple[DType, ...] = (i64, i32, i16, i8, u64, u32, u16, u8)
NUMERIC: tuple[DType, ...] = FLOATS + INTEGERS

_BY_NAME = {d.name: d for d in ALL}
_BY_STORAGE = {_STORAGE[d.name]: d for d in ALL}


def parse_dtype(name: str) -> DType:
    """The type with this name; `WH1001` if there is none."""
    found = _BY_NAME.get(name)
    if found is None:
        fail("WH1001", f"unknown element type '{name}'", hint=", ".join(_BY_NAME), kind=UsageError)
    return found


def dtype_of(array: np.ndarray[Any, Any]) -> DType:
    """The element type of an array (any byte order is read as the native one)."""
    found = _BY_STORAGE.get(array.dtype.newbyteorder("="))
    if found is None:
        fail("WH1001", f"arrays of NumPy type '{array.dtype}' are not supported", kind=UsageError)
    return found


def compute_dtype(dtype: DType) -> DType:
    """The type in which arithmetic on `dtype` is done: half precision is computed in f32."""
    if dtype.is_float and dtype.bits <= 16:
        return f32
    return dtype


def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and largest value of an integer type."""
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
