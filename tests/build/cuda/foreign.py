"""Arrays of libraries that do not exist, on the memory of a recorded driver."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.build.cuda.recorded_driver import RecordedDriver
from whet.build.cuda.arrays import DeviceView
from whet.build.cuda.foreign_arrays import _DESCRIBE, _STREAM_OF, _Table
from whet.build.cuda.lending import _LENT, _Managed, capsule_of
from whet.codegen.cuda.driver import LEGACY_STREAM
from whet.codegen.cuda.memory import DeviceMemory
from whet.core.types import Array


def on_device(driver: RecordedDriver, array: Array, shift: int = 0) -> DeviceView:
    """A copy on the device, `shift` bytes behind the start of its memory."""
    memory = DeviceMemory(driver, array.nbytes + shift)
    address = memory.address + shift
    ctypes.memmove(address, array.ctypes.data, array.nbytes)
    return DeviceView(driver, address, array.shape, array.dtype, LEGACY_STREAM, True,
                      memory)  # fmt: skip


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
    calls = 0
    __dlpack_c_exchange_api__: Any

    def __init__(self, view: DeviceView) -> None:
        self.view = view
        self.capsule = capsule_of(view)
        managed = next(held[0] for lent, held in _LENT.values() if lent is view)
        assert isinstance(managed, _Managed)
        self.tensor = managed.tensor


def _describe(value: WithTable, out: Any) -> int:
    WithTable.calls += 1
    ctypes.memmove(out, ctypes.addressof(value.tensor), ctypes.sizeof(value.tensor))
    return 0


def _stream_of(kind: int, number: int, out: Any) -> int:
    out[0] = WithTable.stream
    return 0


_CALLBACKS = (_DESCRIBE(_describe), _STREAM_OF(_stream_of))
_NAME = b"dlpack_exchange_api"
TABLE = _Table(1, 3)
TABLE.tensor_from_object = ctypes.cast(_CALLBACKS[0], ctypes.c_void_p).value
TABLE.current_stream = ctypes.cast(_CALLBACKS[1], ctypes.c_void_p).value
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
WithTable.__dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(TABLE), _NAME, None)
