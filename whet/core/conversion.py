"""Arrays in another element type: what a cast means."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import DType, dtype_of, i32, i64, u32, u64
from whet.core.types import Array


def convert_array(array: Array, dtype: DType) -> Array:
    """The values as another element type, which may lose some of them.

    [2.9, -1.0, 300.0, inf, nan]: f32  ->  [2, 255, 44, 0, 0]: u8         [300]: i32  ->  [44]: u8

    Integers keep their lower bits, floats are rounded to the nearest, ties to even.  A float
    becomes an integer by way of `converted_through`, toward zero; what that cannot hold, and NaN,
    become its smallest value.  This is what x86-64 processors make of it, and NumPy on them.
    """
    if not (dtype_of(array).is_float and dtype.is_integer):
        return array.astype(dtype.numpy, copy=False)
    through = converted_through(dtype)
    wide = array.astype(np.float64)
    bound = 2.0 ** (through.bits - 1)
    whole = np.where(np.abs(wide) < bound, wide, -bound).astype(through.numpy)
    if dtype == u64:
        upper = (wide >= bound) & (wide < 2 * bound)
        return np.where(upper, np.where(upper, wide, 0).astype(np.uint64), whole.astype(np.uint64))
    return whole.astype(dtype.numpy, copy=False)


def converted_through(dtype: DType) -> DType:
    """The signed type in which a float becomes an integer before the lower bits of it are taken.

    Of u64, the upper half has to be looked at besides.
    """
    return i64 if dtype in (i64, u64, u32) else i32
