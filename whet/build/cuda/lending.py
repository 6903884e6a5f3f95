"""Arrays on the GPU lent to other libraries through DLPack's capsules."""

from __future__ import annotations

import ctypes
from typing import Any

from whet.build.cuda.arrays import CUDA_DEVICE, DeviceView
from whet.build.cuda.element_types import DLPACK_NUMBERS
from whet.runtime.dlpack import UNREAD, DlTensor


class _Managed(ctypes.Structure):
    """A tensor with the function that gives it back."""

    _fields_ = (
        ("tensor", DlTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


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
_DELETER, _DESTRUCTOR = _Callback(_give_back), _Callback(_drop_capsule)
# Others may call these until the process ends, when modules are gone already.
for _callback in (_DELETER, _DESTRUCTOR):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


def capsule_of(array: DeviceView) -> Any:
    """A capsule with the array, which lives until its reader gives it back."""
    if array.dtype not in DLPACK_NUMBERS:
        raise BufferError(f"DLPack has no number for {array.dtype}")
    rank = len(array.shape)
    shape = (ctypes.c_int64 * max(rank, 1))(*array.shape)
    made = _Managed()
    made.tensor.data = array.address
    made.tensor.device.kind, made.tensor.device.number = CUDA_DEVICE
    made.tensor.rank = rank
    made.tensor.dtype.code, made.tensor.dtype.bits = DLPACK_NUMBERS[array.dtype]
    made.tensor.dtype.lanes = 1
    made.tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    made.deleter = ctypes.cast(_DELETER, ctypes.c_void_p)
    address = ctypes.addressof(made)
    _LENT[address] = (array, (made, shape))
    return _new_capsule(address, UNREAD, ctypes.cast(_DESTRUCTOR, ctypes.c_void_p))
