"""Element types as DLPack numbers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.core import dtypes

_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6

DLPACK_TYPES: dict[tuple[int, int], np.dtype[Any]] = {
    (_SIGNED, 8): dtypes.i8.numpy,
    (_SIGNED, 16): dtypes.i16.numpy,
    (_SIGNED, 32): dtypes.i32.numpy,
    (_SIGNED, 64): dtypes.i64.numpy,
    (_UNSIGNED, 8): dtypes.u8.numpy,
    (_UNSIGNED, 16): dtypes.u16.numpy,
    (_UNSIGNED, 32): dtypes.u32.numpy,
    (_UNSIGNED, 64): dtypes.u64.numpy,
    (_FLOAT, 16): dtypes.f16.numpy,
    (_FLOAT, 32): dtypes.f32.numpy,
    (_FLOAT, 64): dtypes.f64.numpy,
    (_BFLOAT, 16): dtypes.bf16.numpy,
    (_BOOL, 8): dtypes.bool_.numpy,
}
"""NumPy's type by the kind of number and its bits."""
DLPACK_NUMBERS = {dtype: number for number, dtype in DLPACK_TYPES.items()}
