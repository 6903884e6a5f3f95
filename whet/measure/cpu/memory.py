"""The memory that a kernel is tried on: between forbidden pages."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from whet.core.types import Array
from whet.measure.parameters import POISON, Parameter

_NO_ACCESS = 0
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedBytes:
    """Bytes between two pages that nobody may touch, right at the one behind or before them."""

    def __init__(self, nbytes: int, *, at_end: bool) -> None:
        page = mmap.PAGESIZE
        self._body = -(-max(nbytes, 1) // page) * page
        self._map = mmap.mmap(-1, self._body + 2 * page)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for start in (0, page + self._body):
            self._protect(start, page, _NO_ACCESS)
        start = page + (self._body - nbytes if at_end else 0)
        self.bytes = np.frombuffer(self._map, np.uint8, nbytes, start)
        self.bytes[:] = POISON

    def freeze(self) -> None:
        """From now on writing is a fault."""
        self._protect(mmap.PAGESIZE, self._body, mmap.PROT_READ)

    def _protect(self, start: int, nbytes: int, access: int) -> None:
        if _LIBC.mprotect(self._base + start, nbytes, access):
            raise OSError(ctypes.get_errno(), "mprotect failed")


def base_address(p: Parameter, memory: Array) -> int:
    """The address that the kernel takes for that of element 0 when its bytes lie in `memory`."""
    return int(memory.__array_interface__["data"][0]) - p.bounds[0] * p.itemsize
