"""DLPack's tensors, and those of an element type that NumPy's own reader does not know: bfloat16.

The layout of the structures is that of DLPack's header, which its versions do not change.  They
are read and written as a whole: field by field takes ten times as long, and calls on a GPU read
one for every array that they are given.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from whet.core.dtypes import bf16
from whet.core.types import Array, Shape

_BFLOAT, _BITS = 4, 16
UNREAD = b"dltensor"
"""The name of a capsule that nobody has taken the tensor out of."""

TENSOR = struct.Struct("=Q ii i BBH QQ Q")
"""An array: the address of its data; the kind and the number of its device; its rank; of its
elements the kind of number, the bits, and how many lie side by side; the addresses of extents and
of strides in elements, 0 for none, when it is row-major; the bytes before its first element."""

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype = ctypes.c_void_p
pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


ReadExtents = Callable[[int], Shape]


@lru_cache
def extents_reader(rank: int) -> ReadExtents:
    """A function that reads so many extents or strides at an address."""
    memory, numbers = (ctypes.c_int64 * rank).from_address, struct.Struct(f"={rank}q").unpack
    return lambda address: numbers(memory(address))


class _Lent:
    """Memory of another library's tensor, which lives as long as its capsule."""

    def __init__(self, capsule: Any, interface: dict[str, Any]) -> None:
        self.capsule, self.__array_interface__ = capsule, interface


def tensor_in(capsule: Any) -> tuple[int, ...]:
    """The fields of the tensor in a capsule that nobody has read."""
    return TENSOR.unpack(ctypes.string_at(pointer_of(capsule, UNREAD), TENSOR.size))


def bfloat16_from_dlpack(value: Any) -> Array | None:
    """The tensor as an array on the same memory; None if it is not of bfloat16."""
    capsule = value.__dlpack__()
    data, _, _, rank, code, bits, lanes, extents, steps, offset = tensor_in(capsule)
    if (code, bits, lanes) != (_BFLOAT, _BITS, 1):
        return None
    read = extents_reader(rank)
    shape = read(extents)
    if not math.prod(shape):
        return np.empty(shape, bf16.numpy)
    size = bf16.itemsize
    interface = {
        "data": (data + offset, False),
        "shape": shape,
        "strides": tuple(s * size for s in read(steps)) if steps else None,
        "typestr": f"<u{size}",
        "version": 3,
    }
    return np.asarray(_Lent(capsule, interface)).view(bf16.numpy)
