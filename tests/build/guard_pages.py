"""Arrays at the very edge of readable memory, so that one element too far is a fault."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from whet.core.types import Array, TensorType

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedMemory:
    """Hands out arrays that lie between two pages which nobody may touch.

    With `at_end` an array ends where the forbidden page begins, otherwise it starts right
    after one.  New arrays are filled with ones in all bits: NaN in every type that has it.
    """

    def __init__(self, *, at_end: bool) -> None:
        self.at_end = at_end
        self.maps: list[mmap.mmap] = []

    def empty(self, t: TensorType) -> Array:
        page = mmap.PAGESIZE
        body = -(-max(t.nbytes, 1) // page) * page
        memory = mmap.mmap(-1, body + 2 * page)
        self.maps.append(memory)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for start in (base, base + page + body):
            assert _LIBC.mprotect(start, page, 0) == 0, ctypes.get_errno()
        start = page + (body - t.nbytes if self.at_end else 0)
        raw = np.frombuffer(memory, np.uint8, t.nbytes, start)
        raw[:] = 0xFF
        return raw.view(t.dtype.numpy).reshape(t.shape)

    def copy(self, array: Array, t: TensorType) -> Array:
        made = self.empty(t)
        made[...] = array
        return made
