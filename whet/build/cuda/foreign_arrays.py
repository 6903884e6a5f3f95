"""Arrays of other libraries that lie on the GPU, taken as they are.

A library says where an array lies in one of three ways.  By DLPack's table of functions, which
also tells the stream that the caller works on (torch); by the CUDA array interface, which may
(CuPy, Numba); or by DLPack's capsule, whose contents then wait for the stream that is named here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, py_object
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from whet.build.cuda.arrays import CUDA_DEVICE, DeviceView
from whet.build.cuda.element_types import DLPACK_TYPES
from whet.codegen.cuda.driver import LEGACY_STREAM, Driver, Stream
from whet.core.errors import UsageError, fail
from whet.core.types import Shape
from whet.ir.program import row_major
from whet.runtime.dlpack import TENSOR, extents_reader, pointer_of, tensor_in


def adopted(values: Sequence[Any], names: Sequence[str], driver: Driver) -> list[DeviceView | None]:
    """Views of the arrays of one call, which hold them; None for what does not lie on a GPU."""
    views: list[DeviceView | None] = []
    asked, stream = None, LEGACY_STREAM
    for value, name in zip(values, names):
        if isinstance(value, DeviceView):
            views.append(value)
            continue
        kind = type(value)
        table = _KNOWN[kind] if kind in _KNOWN else _exchange(kind)
        if table is None:
            views.append(_by_protocol(value, name, driver))
            continue
        view = table.view(value, name, driver)
        views.append(view)
        if view is not None:
            if table is not asked:  # the caller works on one stream, whatever arrays there are
                asked, stream = table, table.stream()
            view.stream = stream
    return views


def _by_protocol(value: Any, name: str, driver: Driver) -> DeviceView | None:
    """A view of an array whose library has no table."""
    if isinstance(value, np.ndarray):
        return None
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None and interface.get("stream") is not None:
        return _from_interface(value, interface, name, driver)
    if hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) != CUDA_DEVICE[0]:
            return None
        capsule = value.__dlpack__(stream=LEGACY_STREAM)
        # The capsule must live: it gives the array back when it goes.
        held = value, capsule
        return _from_fields(tensor_in(capsule), held, name, driver, LEGACY_STREAM, False)
    if interface is not None:
        return _from_interface(value, interface, name, driver)
    return None


def _from_fields(
    fields: tuple[int, ...], owner: Any, name: str, driver: Driver, stream: Stream, follows: bool
) -> DeviceView:
    """A view of a tensor of DLPack."""
    data, _, device, rank, code, bits, lanes, extents, steps, offset = fields
    dtype = DLPACK_TYPES.get((code, bits))
    if dtype is None or lanes != 1:
        fail("WH3003", f"input '{name}' has elements of a type that whet does not have "
             f"(DLPack type {code} of {bits} bits)", kind=UsageError)  # fmt: skip
    if device != CUDA_DEVICE[1]:
        fail("WH3003", f"input '{name}' lies on GPU {device}, and models run on GPU "
             f"{CUDA_DEVICE[1]}", kind=UsageError)  # fmt: skip
    read = extents_reader(rank)
    shape = read(extents)
    if steps and not _is_contiguous(shape, read(steps)):
        _refuse_gaps(name)
    return DeviceView(driver, data + offset, shape, dtype, stream, follows, owner)


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
# exception that they leave is raised.  They are given what they take as it is: arguments of
# declared types take half as long again.
_FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_int)
_Room = ctypes.c_char * TENSOR.size


class _Exchange:
    """The table of one library, for arrays of one type.

    Many libraries' arrays also tell address, shape and layout by methods of their own, which take
    a third of the time.  They are asked once the table has said the same of an array with this
    element type on this device.
    """

    def __init__(self, table: _Table, capsule: Any, kind: type) -> None:
        self._describe: Callable[..., int] = _FUNCTION(table.tensor_from_object)
        self._stream_of: Callable[..., int] = _FUNCTION(table.current_stream)
        self._capsule = capsule
        self._has_methods = all(hasattr(kind, name) for name in _METHODS)
        self._confirmed: dict[tuple[Any, Any], np.dtype[Any]] = {}
        """NumPy's element type by the library's own and the device, where methods can be asked."""

    def stream(self) -> Stream:
        """The stream that the caller works on."""
        found = ctypes.c_void_p()
        self._stream_of(*CUDA_DEVICE, byref(found))
        # No stream is the one that everybody has.
        return found.value or LEGACY_STREAM

    def view(self, value: Any, name: str, driver: Driver) -> DeviceView | None:
        """A view of the array, for any stream; None if it does not lie on a GPU."""
        if self._confirmed:
            dtype = self._confirmed.get((value.dtype, value.device))
            if dtype is not None and value.is_contiguous():
                address = value.data_ptr()
                return DeviceView(driver, address, value.shape, dtype, LEGACY_STREAM, True, value)
        room = _Room()
        if self._describe(py_object(value), byref(room)):
            return None
        fields = TENSOR.unpack(room)
        if fields[1] != CUDA_DEVICE[0]:
            return None
        view = _from_fields(fields, value, name, driver, LEGACY_STREAM, True)
        if self._has_methods and _say_the_same(value, view):
            self._confirmed[value.dtype, value.device] = view.dtype
        return view


_METHODS = ("data_ptr", "device", "dtype", "is_contiguous", "shape")


def _say_the_same(value: Any, view: DeviceView) -> bool:
    """Whether an array's methods say what is known of it; its shape must be some kind of tuple."""
    found = value.data_ptr(), value.shape, value.is_contiguous()
    return found == (view.address, view.shape, True)


_KNOWN: dict[type, _Exchange | None] = {}
"""Tables by the types of arrays that have been seen."""


def _exchange(kind: type) -> _Exchange | None:
    """The table of the library that a type is of, if it has one, which is known from now on."""
    capsule, found = getattr(kind, "__dlpack_c_exchange_api__", None), None
    if capsule is not None:
        table = _Table.from_address(pointer_of(capsule, _TABLE_NAME))
        if table.major == _KNOWN_MAJOR and table.tensor_from_object and table.current_stream:
            found = _Exchange(table, capsule, kind)
    _KNOWN[kind] = found
    return found
