"""Memory for results, used again once nobody holds the array that lay in it.

A large fresh array costs more than its bytes: the operating system hands out zeroed pages one
fault at a time: a fifth of the call that adds bias and ReLU to 51 MB.  Memory that a result has
left is warm, so the next one gets it.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from whet.core.alignment import ALIGNMENT, aligned
from whet.core.types import Array, Shape

WORTHWHILE_BYTES = 1 << 18
"""Smaller arrays come from memory that the C library keeps anyway."""
KEPT_ROOMS = 2
"""Rooms that wait for the next result.  A loop `y = model(x)` needs one: `y` holds the other."""

Room = ctypes.Array[ctypes.c_ubyte]


class Results:
    """Hands out arrays of one type and shape."""

    def __init__(self, shape: Shape, dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._bytes = math.prod(shape) * dtype.itemsize
        self._waiting: list[Room] = []

    def new(self) -> Array:
        """An array with any contents that shares no memory with one that is still in use."""
        if self._bytes < WORTHWHILE_BYTES:
            return np.empty(self._shape, self._dtype)
        try:
            room = self._waiting.pop()  # one operation, hence safe between threads
        except IndexError:
            memory = aligned(np.empty(self._bytes + ALIGNMENT, np.uint8), self._bytes)
            room = (ctypes.c_ubyte * self._bytes).from_buffer(memory.data)
        lease = _Lease(self._shape, self._dtype, room)  # type: ignore[arg-type]
        lease.room, lease.waiting = room, self._waiting
        return lease.view(np.ndarray)


class _Lease(np.ndarray[Any, Any]):
    """The object that an array and its views hold on to: when it goes, the room is free again.

    A weak reference to the array itself would not do, since its views outlive it.  A view holds
    on to the array that it was made from, unless that lies in memory of yet another array: hence
    rooms are no arrays.
    """

    room: Room
    waiting: list[Room] | None = None
    """None for an array that somebody made from a lease: it has no room to give back."""

    def __del__(self) -> None:
        if self.waiting is not None and len(self.waiting) < KEPT_ROOMS:
            self.waiting.append(self.room)
