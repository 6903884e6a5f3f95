"""What CUDA code can and cannot say."""

from __future__ import annotations

from typing import NoReturn

from whet.core.dtypes import DType, bf16, f16
from whet.core.errors import NoCodeError

C_TYPES = {
    "f64": "double", "f32": "float", "f16": "unsigned short", "bf16": "unsigned short",
    "i64": "long long", "i32": "int", "i16": "short", "i8": "signed char",
    "u64": "unsigned long long", "u32": "unsigned int", "u16": "unsigned short",
    "u8": "unsigned char", "bool": "unsigned char",
}  # fmt: skip
"""Element types as they lie in memory."""
HALVES = frozenset({f16, bf16})


def no_code(what: str) -> NoReturn:
    raise NoCodeError("WH1303", f"no CUDA code for {what}")


def require_code(condition: bool, what: str) -> None:
    if not condition:
        no_code(what)


def has_code(dtype: DType) -> bool:
    return dtype.name in C_TYPES


def memory_type(dtype: DType) -> str:
    """The type of elements in memory."""
    require_code(has_code(dtype), f"elements of {dtype}")
    return C_TYPES[dtype.name]


def value_type(dtype: DType) -> str:
    """The type of elements in registers: half precision as the f32 that it is exactly."""
    if dtype in HALVES:
        return "float"
    return "bool" if dtype.name == "bool" else memory_type(dtype)
