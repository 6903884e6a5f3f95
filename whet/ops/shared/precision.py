"""Composite operators on half precision: widened to f32 first, rounded once at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.core.dtypes import DType, compute_dtype, dtype_of
from whet.core.types import Array
from whet.ops.base import Builder
from whet.ops.casting import Cast


def widen(array: Array) -> Array:
    """The array in the type in which arithmetic on it is done."""
    return array.astype(compute_dtype(dtype_of(array)).numpy, copy=False)


def converted(b: Builder, value: Any, dtype: DType) -> Any:
    """The value as `dtype`; nothing is built when it already has that type."""
    return value if b.type(value).dtype == dtype else b(Cast(dtype), value)


def widened(b: Builder, value: Any) -> Any:
    """The value in the type in which arithmetic on it is done."""
    return converted(b, value, compute_dtype(b.type(value).dtype))


def scalar(b: Builder, number: float, like: Any) -> Any:
    """A constant of the value's element type that broadcasts against it."""
    return b.constant(np.asarray(number, b.type(like).dtype.numpy))
