"""What the code generator can and cannot say."""

from __future__ import annotations

from typing import NoReturn

from whet.core.dtypes import DType
from whet.core.errors import NoCodeError

DTYPES = frozenset({
    "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool",
})  # fmt: skip
"""Element types that generated code can hold."""


def no_code(what: str) -> NoReturn:
    raise NoCodeError("WH1303", f"no native code for {what}")


def require_code(condition: bool, what: str) -> None:
    if not condition:
        no_code(what)


def has_code(dtype: DType) -> bool:
    return dtype.name in DTYPES
