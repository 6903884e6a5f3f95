"""Arrays of other libraries as NumPy arrays, without a copy."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.core.errors import UsageError, check, fail
from whet.core.types import Array
from whet.runtime.dlpack import bfloat16_from_dlpack

_CPU_DEVICES = (1, 3, 11, 13)
"""DLPack's numbers for memory that the CPU can read: plain, and pinned or managed by a GPU."""


def as_numpy(value: Any, name: str) -> Array:
    """The value as a NumPy array in native byte order.

    NumPy arrays and objects with `__dlpack__` or `__array__` are taken as they are; lists and
    numbers are not, because their element type would be a guess.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        array = _from_dlpack(value, name)
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        fail("WH3003", f"input '{name}' is a {type(value).__name__}, not an array",
             hint="pass a NumPy array or an object with __dlpack__", kind=UsageError)  # fmt: skip
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def _from_dlpack(value: Any, name: str) -> Array:
    device = int(value.__dlpack_device__()[0])
    check(device in _CPU_DEVICES, "WH3003",
          f"input '{name}' lies on a device (DLPack type {device}) that the CPU cannot read",
          hint="copy it to the CPU first", kind=UsageError)  # fmt: skip
    try:
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError):
            found = bfloat16_from_dlpack(value)
            if found is None:
                raise
            return found
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        # Each library has its own exception for what it cannot export (gradients, for example).
        fail("WH3003", f"input '{name}' cannot be read through DLPack: {error}",
             kind=UsageError)  # fmt: skip


def _described_address(array: Array) -> int:
    """The address of the first element, by the interface that NumPy documents (a microsecond)."""
    address: int = array.__array_interface__["data"][0]
    return address


class _ArrayHead(ctypes.Structure):
    """An array as CPython keeps it: reference count, type, and the pointer to its elements."""

    _fields_ = (("count", ctypes.c_size_t), ("type", ctypes.c_size_t), ("data", ctypes.c_size_t))


_head_of = _ArrayHead.from_address


def _stored_address(array: Array) -> int:
    """The same, read from the array object itself: ten times as fast."""
    address: int = _head_of(id(array)).data
    return address


def _fields_are_known() -> bool:
    """Whether arrays look inside as expected (an interpreter without a lock differs)."""
    probe = np.zeros(4)
    return sys.implementation.name == "cpython" and all(
        _stored_address(a) == _described_address(a) for a in (probe, probe[1:])
    )


address_of = _stored_address if _fields_are_known() else _described_address

_C_CONTIGUOUS, _ALIGNED = 0x1, 0x100
_READY = _C_CONTIGUOUS | _ALIGNED


def is_ready(array: Array) -> bool:
    """True when native code can read the array where it lies.

    NumPy's scalars look like arrays but keep their value elsewhere.
    """
    return isinstance(array, np.ndarray) and array.flags.num & _READY == _READY


def overlapping(arrays: Sequence[Array]) -> bool:
    """Whether two elements of these arrays share memory, so that not all can be written."""
    for number, array in enumerate(arrays):
        if not array.flags.c_contiguous and _overlaps_itself(array):
            return True
        if any(_share(array, other) for other in arrays[:number]):
            return True
    return False


def _share(a: Array, b: Array) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        # Interleaved arrays have common bounds and no common element.
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: Array) -> bool:
    """True unless every step along an axis is longer than all that lies within it."""
    reach = array.itemsize
    axes = sorted((abs(s), d) for s, d in zip(array.strides, array.shape) if d > 1)
    for stride, extent in axes:
        if stride < reach:
            return bool(array.size)
        reach += stride * (extent - 1)
    return False
