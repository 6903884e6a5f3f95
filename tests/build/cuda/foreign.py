"""Arrays of libraries that do not exist, on the memory of a recorded driver."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.build.cuda.recorded_driver import RecordedDriver
from whet.build.cuda.arrays import DeviceView
from whet.build.cuda.foreign_arrays import _Table, adopted
from whet.build.cuda.lending import _LENT, capsule_of
from whet.codegen.cuda.driver import LEGACY_STREAM
from whet.codegen.cuda.memory import DeviceMemory
from whet.core.types import Array
from whet.runtime.dlpack import TENSOR


def on_device(driver: RecordedDriver, array: Array, shift: int = 0) -> DeviceView:
    """A copy on the device, `shift` bytes behind the start of its memory."""
    memory = DeviceMemory(driver, array.nbytes + shift)
    address = memory.address + shift
    ctypes.memmove(address, array.ctypes.data, array.nbytes)
    return DeviceView(driver, address, array.shape, array.dtype, LEGACY_STREAM, True,
                      memory)  # fmt: skip


def adopted_one(value: Any, driver: RecordedDriver) -> DeviceView | None:
    """The only array of a call."""
    (view,) = adopted([value], ["x"], driver)
    return view


class WithInterface:
    """An array that has the CUDA array interface and nothing else."""

    def __init__(self, view: DeviceView, **more: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": view.shape, "typestr": view.dtype.str, "data": (view.address, False),
            "version": 3, **more,
        }  # fmt: skip
        self.view = view


class WithCapsule:
    """An array that has DLPack's methods and nothing else."""

    def __init__(self, view: DeviceView, device: tuple[int, int] = (2, 0)) -> None:
        self.view, self.device = view, device
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        self.streams.append(stream)
        return capsule_of(self.view)


class WithTable:
    """An array of a library that has DLPack's table of functions."""

    stream = 77
    asked = 0
    """How often somebody wanted to know the stream."""
    __dlpack_c_exchange_api__: Any

    described = 0
    """How often one of its arrays was described."""

    def __init__(self, view: DeviceView) -> None:
        self.view = view
        self.capsule = capsule_of(view)
        self.tensor = next(address for address, (lent, _) in _LENT.items() if lent is view)


def _describe(value: WithTable, out: int) -> int:
    WithTable.described += 1
    ctypes.memmove(out, value.tensor, TENSOR.size)
    return 0


def _stream_of(kind: int, number: int, out: int) -> int:
    WithTable.asked += 1
    ctypes.c_void_p.from_address(out).value = WithTable.stream
    return 0


_CALLBACKS: tuple[Any, ...] = (
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(_describe),
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)(_stream_of),
)
_NAME = b"dlpack_exchange_api"
TABLE = _Table(1, 3)
TABLE.tensor_from_object = ctypes.cast(_CALLBACKS[0], ctypes.c_void_p).value
TABLE.current_stream = ctypes.cast(_CALLBACKS[1], ctypes.c_void_p).value
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
WithTable.__dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(TABLE), _NAME, None)


class WithMethods(WithTable):
    """An array of such a library that also tells where it lies by methods of its own."""

    device, is_row_major = "gpu", True

    @property
    def dtype(self) -> str:
        return f"element type {self.view.dtype}"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    def data_ptr(self) -> int:
        return self.view.address

    def is_contiguous(self) -> bool:
        return self.is_row_major


class WithOtherMethods(WithMethods):
    """Another whose methods of the same names mean something else."""

    def data_ptr(self) -> int:
        return 3


class OnHost(WithTable):
    """An array of such a library in memory of this process."""

    def __init__(self, view: DeviceView) -> None:
        super().__init__(view)
        fields = list(TENSOR.unpack(ctypes.string_at(self.tensor, TENSOR.size)))
        fields[1] = 1  # DLPack's number for the CPU
        self.room = ctypes.create_string_buffer(TENSOR.pack(*fields), TENSOR.size)
        self.tensor = ctypes.addressof(self.room)
