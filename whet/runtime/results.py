"""Memory for results, used again once nobody holds the array that lay in it.

A large fresh array costs more than its bytes: the operating system hands out zeroed pages one
fault at a time: a fifth of the call that adds bias and ReLU to 51 MB.  Memory that a result has
left is warm, so the next one gets it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whet.core.alignment import ALIGNMENT, aligned
from whet.core.types import Array, Shape

WORTHWHILE_BYTES = 1 << 18
"""Smaller arrays come from memory that the C library keeps anyway."""
KEPT_ROOMS = 2
"""Rooms that wait for the next result.  A loop `y = model(x)` needs one: `y` holds the other."""


class Results:
    """Hands out arrays of one type and shape."""

    def __init__(self, shape: Shape, dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._bytes = math.prod(shape) * dtype.itemsize
        self._waiting: list[Array] = []

    def new(self) -> Array:
        """An array with any contents that shares no memory with one that is still in use."""
        if self._bytes < WORTHWHILE_BYTES:
            return np.empty(self._shape, self._dtype)
        try:
            room = self._waiting.pop()  # one operation, hence safe between threads
        except IndexError:
            room = np.empty(self._bytes + ALIGNMENT, np.uint8)
        return (
            np.asarray(_Lease(room, self._bytes, self._waiting))
            .view(self._dtype)
            .reshape(self._shape)
        )


class _Lease:
    """What an array and all views of it hold on to: when it goes, the room is free again.

    A weak reference to the array itself would not do, since its views outlive it.
    """

    __slots__ = ("__array_interface__", "_room", "_waiting")

    def __init__(self, room: Array, nbytes: int, waiting: list[Array]) -> None:
        self._room, self._waiting = room, waiting
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (nbytes,),
            "data": (aligned(room, nbytes).ctypes.data, False),
        }  # fmt: skip

    def __del__(self) -> None:
        if len(self._waiting) < KEPT_ROOMS:
            self._waiting.append(self._room)
