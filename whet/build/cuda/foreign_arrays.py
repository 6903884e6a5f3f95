"""Arrays of other libraries that lie on the GPU, taken as they are.

A library says where an array lies in one of three ways.  By DLPack's table of functions, which
also tells the stream that the caller works on (torch); by the CUDA array interface, which may
(CuPy, Numba); or by DLPack's capsule, whose contents then wait for the stream that is named here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from whet.build.cuda.arrays import CUDA_DEVICE, DeviceView
from whet.build.cuda.element_types import DLPACK_TYPES
from whet.codegen.cuda.driver import LEGACY_STREAM, Driver, Stream
from whet.core.errors import UsageError, fail
from whet.core.types import Shape
from whet.ir.program import row_major
from whet.runtime.dlpack import UNREAD, DlTensor, pointer_of


def adopted(value: Any, name: str, driver: Driver) -> DeviceView | None:
    """A view of the array, which holds it; None if it does not lie on a GPU."""
    if isinstance(value, DeviceView):
        return value
    table = _exchange(type(value))
    if table is not None:
        return table.view(value, name, driver)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None and interface.get("stream") is not None:
        return _from_interface(value, interface, name, driver)
    if hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) != CUDA_DEVICE[0]:
            return None
        capsule = value.__dlpack__(stream=LEGACY_STREAM)
        tensor = DlTensor.from_address(pointer_of(capsule, UNREAD))
        # The capsule must live: it gives the array back when it goes.
        return _from_tensor(tensor, (value, capsule), name, driver, LEGACY_STREAM, follows=False)
    if interface is not None:
        return _from_interface(value, interface, name, driver)
    return None


def _from_tensor(
    tensor: DlTensor, owner: Any, name: str, driver: Driver, stream: Stream, *, follows: bool
) -> DeviceView:
    kind, device = tensor.dtype, tensor.device.number
    dtype = DLPACK_TYPES.get((kind.code, kind.bits))
    if dtype is None or kind.lanes != 1:
        fail("WH3003", f"input '{name}' has elements of a type that whet does not have "
             f"(DLPack type {kind.code} of {kind.bits} bits)", kind=UsageError)  # fmt: skip
    if device != CUDA_DEVICE[1]:
        fail("WH3003", f"input '{name}' lies on GPU {device}, and models run on GPU "
             f"{CUDA_DEVICE[1]}", kind=UsageError)  # fmt: skip
    rank, strides = tensor.rank, tensor.strides
    shape = tuple(tensor.shape[:rank])
    if strides and not _is_contiguous(shape, tuple(strides[:rank])):
        _refuse_gaps(name)
    address = (tensor.data or 0) + tensor.byte_offset
    return DeviceView(driver, address, shape, dtype, stream, follows, owner)


def _from_interface(value: Any, interface: dict[str, Any], name: str, driver: Driver) -> DeviceView:
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    strides = interface.get("strides")
    if strides is not None:
        steps = tuple(s // dtype.itemsize for s in strides)
        if not _is_contiguous(shape, steps):
            _refuse_gaps(name)
    stream = interface.get("stream")
    return DeviceView(
        driver, interface["data"][0], shape, dtype, LEGACY_STREAM if stream is None else stream,
        stream is not None, value,
    )  # fmt: skip


@lru_cache
def _is_contiguous(shape: Shape, strides: Shape) -> bool:
    steps = zip(shape, strides, row_major(shape))
    return 0 in shape or all(d == 1 or s == expected for d, s, expected in steps)


def _refuse_gaps(name: str) -> NoReturn:
    fail("WH3003", f"input '{name}' lies on the GPU with gaps",
         hint="pass an array whose elements follow each other in memory",
         kind=UsageError)  # fmt: skip


# ---------------------------------------------------------------------- DLPack's table of functions
class _Table(ctypes.Structure):
    """Functions of a library on its own arrays, as DLPack's header has them."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


_KNOWN_MAJOR = 1
_TABLE_NAME = b"dlpack_exchange_api"
# Functions of a library work on its objects: the interpreter's lock is held meanwhile, and an
# exception that they leave is raised.
_DESCRIBE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DlTensor))
_STREAM_OF = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class _Exchange:
    """The table of one library."""

    def __init__(self, table: _Table, capsule: Any) -> None:
        self.describe: Callable[..., int] = _DESCRIBE(table.tensor_from_object)
        self.stream_of: Callable[..., int] = _STREAM_OF(table.current_stream)
        self.capsule = capsule

    def view(self, value: Any, name: str, driver: Driver) -> DeviceView | None:
        tensor, stream = DlTensor(), ctypes.c_void_p()
        if self.describe(value, ctypes.byref(tensor)) or tensor.device.kind != CUDA_DEVICE[0]:
            return None
        self.stream_of(*CUDA_DEVICE, ctypes.byref(stream))
        # No stream is the one that everybody has.
        chosen = stream.value or LEGACY_STREAM
        return _from_tensor(tensor, value, name, driver, chosen, follows=True)


_KNOWN: dict[type, _Exchange | None] = {}
"""Tables by the types of arrays that have been seen."""


def _exchange(kind: type) -> _Exchange | None:
    """The table of the library that a type is of, if it has one."""
    if kind in _KNOWN:
        return _KNOWN[kind]
    capsule, found = getattr(kind, "__dlpack_c_exchange_api__", None), None
    if capsule is not None:
        table = _Table.from_address(pointer_of(capsule, _TABLE_NAME))
        if table.major == _KNOWN_MAJOR and table.tensor_from_object and table.current_stream:
            found = _Exchange(table, capsule)
    _KNOWN[kind] = found
    return found
