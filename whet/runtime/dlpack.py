"""DLPack's tensors, and those of an element type that NumPy's own reader does not know: bfloat16.

The layout of the structures is that of DLPack's header, which its versions do not change.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from whet.core.dtypes import bf16
from whet.core.types import Array

_BFLOAT, _BITS = 4, 16
UNREAD = b"dltensor"
"""The name of a capsule that nobody has taken the tensor out of."""


class DlDevice(ctypes.Structure):
    """The place of memory: a kind of device, and which of them."""

    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class DlType(ctypes.Structure):
    """An element type: a kind of number, its bits, and how many there are side by side."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DlTensor(ctypes.Structure):
    """An array; without strides it is row-major."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DlDevice),
        ("rank", ctypes.c_int32),
        ("dtype", DlType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype = ctypes.c_void_p
pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


class _Lent:
    """Memory of another library's tensor, which lives as long as its capsule."""

    def __init__(self, capsule: Any, interface: dict[str, Any]) -> None:
        self.capsule, self.__array_interface__ = capsule, interface


def bfloat16_from_dlpack(value: Any) -> Array | None:
    """The tensor as an array on the same memory; None if it is not of bfloat16."""
    capsule = value.__dlpack__()
    tensor = DlTensor.from_address(pointer_of(capsule, UNREAD))
    if (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) != (_BFLOAT, _BITS, 1):
        return None
    shape = tuple(tensor.shape[n] for n in range(tensor.rank))
    if not math.prod(shape):
        return np.empty(shape, bf16.numpy)
    size = bf16.itemsize
    strides = (
        tuple(tensor.strides[n] * size for n in range(tensor.rank)) if tensor.strides else None
    )
    interface = {
        "data": (tensor.data + tensor.byte_offset, False),
        "shape": shape,
        "strides": strides,
        "typestr": f"<u{size}",
        "version": 3,
    }
    return np.asarray(_Lent(capsule, interface)).view(bf16.numpy)
