"""Arrays on the GPU lent to other libraries through DLPack's capsules."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from whet.build.cuda.arrays import CUDA_DEVICE, DeviceView
from whet.build.cuda.element_types import DLPACK_NUMBERS
from whet.runtime.dlpack import TENSOR, UNREAD

MANAGED = struct.Struct(f"{TENSOR.format} QQ")
"""A tensor, what its owner knows it by, and the address of the function that gives it back."""
_EXTENT_BYTES = 8

_LENT: dict[int, tuple[DeviceView, Any]] = {}
"""What others hold, by the address of the structure that they were given."""


def _give_back(address: int) -> None:
    _LENT.pop(address, None)


def _drop_capsule(capsule: int) -> None:
    """A capsule goes: if nobody took the tensor out of it, nobody else will give it back."""
    if _is_valid(capsule, UNREAD):
        _give_back(_pointer_in(capsule, UNREAD))


# The capsule is being destroyed there: it must not become an object of Python again.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _lasting(function: Any) -> int:
    """The address of a function that others may call until the process ends, when modules are
    gone already."""
    callback = _Callback(function)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return ctypes.cast(callback, ctypes.c_void_p).value or 0


_DELETER, _DESTRUCTOR = _lasting(_give_back), _lasting(_drop_capsule)


def capsule_of(array: DeviceView) -> Any:
    """A capsule with the array, which lives until its reader gives it back.

    structure, extents     in one piece of memory
    """
    number = DLPACK_NUMBERS.get(array.dtype)
    if number is None:
        raise BufferError(f"DLPack has no number for {array.dtype}")
    rank = len(array.shape)
    made = (ctypes.c_char * (MANAGED.size + _EXTENT_BYTES * rank))()
    address = ctypes.addressof(made)
    extents = address + MANAGED.size
    MANAGED.pack_into(made, 0, array.address, *CUDA_DEVICE, rank, *number, 1, extents, 0, 0, 0,
                      _DELETER)  # fmt: skip
    struct.pack_into(f"={rank}q", made, MANAGED.size, *array.shape)
    _LENT[address] = array, made
    return _new_capsule(address, UNREAD, _DESTRUCTOR)
