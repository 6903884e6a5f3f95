"""Arrays as short literals: `[1.0, -2.5]`, read back to the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.core.dtypes import DType
from whet.core.types import Array, TensorType, type_of

INLINE_ELEMENTS = 16
"""Arrays of at most this many elements are written in the text itself."""


def show_array(array: Array) -> str | None:
    """The elements in row-major order as a literal list.

    None if there are too many of them, or one has no literal (a NaN with a payload, say).
    """
    if array.size > INLINE_ELEMENTS:
        return None
    type = type_of(array)
    items = [_show_scalar(element, type) for element in np.ravel(array)]
    read = array_from_items([_python_scalar(text) for text in items], type)
    same = read is not None and read.tobytes() == np.ascontiguousarray(array).tobytes()
    return f"[{', '.join(items)}]" if same else None


def array_from_items(items: Sequence[Any], type: TensorType) -> Array | None:
    """The array of this type with these elements; None if they do not fit the type."""
    if len(items) != type.size:
        return None
    wide: Any
    if type.dtype.kind == "bool":
        wide, fits = np.bool_, all(isinstance(i, bool) for i in items)
    elif type.dtype.is_float:
        wide, fits = np.float64, all(isinstance(i, float) or _is_integer(i) for i in items)
    else:
        low, high = _range(type.dtype)
        wide = np.uint64 if type.dtype.kind == "uint" else np.int64
        fits = all(_is_integer(i) and low <= i < high for i in items)
    if not fits:
        return None
    with np.errstate(all="ignore"):  # a float literal beyond the type's range becomes inf
        return np.array(items, wide).astype(type.dtype.numpy).reshape(type.shape)


def _is_integer(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _range(dtype: DType) -> tuple[int, int]:
    """The values of an integer type lie in [low, high)."""
    half = 1 << (dtype.bits - 1)
    return (0, 2 * half) if dtype.kind == "uint" else (-half, half)


def _show_scalar(element: Any, type: TensorType) -> str:
    if type.dtype.kind == "bool":
        return str(bool(element)).lower()
    if type.dtype.is_integer:
        return str(int(element))
    value = float(element)
    if type.dtype.bits == 32 and np.isfinite(value):
        # The short decimal form, where rounding it twice (to f64, to f32) does no harm.
        short = str(np.float32(value))
        if np.float32(float(short)) == value:
            return short
    return repr(value)


def _python_scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)
