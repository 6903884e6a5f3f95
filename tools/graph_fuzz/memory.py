"""Memory that notices: arrays between forbidden pages and bytes that must not change."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import whet.build.cpu.segment as segment_module
from whet.core.alignment import ALIGNMENT
from whet.core.dtypes import u8
from whet.core.types import Array, TensorType, type_of

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
NOTHING, READ = 0, 1
MARK = 0xA5
FILL = 0xFF
"""New arrays are filled with ones in all bits: NaN in every type that has it."""


def _protect(address: int, nbytes: int, allowed: int) -> None:
    assert _LIBC.mprotect(address, nbytes, allowed) == 0, ctypes.get_errno()


@dataclass
class Fences:
    """Hands out arrays at the edge of what may be touched.

    With `pages`, one page on each side is forbidden: a wrong access ends the process.  Without,
    there is a wide margin on both sides, and `damage` says whether somebody wrote there.  In
    both cases bytes between the array and the far page are marked.
    """

    pages: bool
    at_end: bool
    margin: int = 1 << 14
    marked: list[Array] = field(default_factory=list)
    held: list[mmap.mmap] = field(default_factory=list)

    def empty(self, t: TensorType, *, aligned: bool = False) -> Array:
        """An array with ones in all bits; `aligned` to a cache line, else to its elements."""
        step = ALIGNMENT if aligned else t.dtype.itemsize
        room = self.margin if not self.pages else mmap.PAGESIZE
        body = -(-max(t.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(-1, body + 2 * room)
        self.held.append(memory)
        start = room
        if self.at_end:
            start += (body - t.nbytes) // step * step
        whole = np.frombuffer(memory, np.uint8)
        whole[:] = MARK
        if self.pages:
            base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            _protect(base, room, NOTHING)
            _protect(base + room + body, room, NOTHING)
            self.marked += [whole[room:start], whole[start + t.nbytes : room + body]]
        else:
            self.marked += [whole[:start], whole[start + t.nbytes :]]
        raw = whole[start : start + t.nbytes]
        raw[:] = FILL
        return raw.view(t.dtype.numpy).reshape(t.shape)

    def copy(self, array: Array, *, read_only: bool = True) -> Array:
        """The array in such memory; with `read_only` (and pages) writing it is an error too."""
        made = self.empty(type_of(array))
        made[...] = array
        if read_only and self.pages and made.nbytes:
            start = made.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
            length = made.ctypes.data + made.nbytes - start
            _protect(start, -(-length // mmap.PAGESIZE) * mmap.PAGESIZE, READ)
        made.flags.writeable = False
        return made

    def damage(self) -> bool:
        """Whether a marked byte has changed."""
        return any((m != MARK).any() for m in self.marked)


@contextmanager
def fenced_arenas(*, pages: bool) -> Iterator[list[Fences]]:
    """The working memory of compiled models lies between fences too."""
    made: list[Fences] = []
    module: Any = segment_module
    original = module.aligned_zeros

    def fenced_zeros(nbytes: int) -> Array:
        fences = Fences(pages=pages, at_end=True)
        made.append(fences)
        array = fences.empty(TensorType((nbytes,), u8), aligned=True)
        array[:] = 0
        return array

    module.aligned_zeros = fenced_zeros
    try:
        yield made
    finally:
        module.aligned_zeros = original


def differently_laid_out(array: Array, way: str) -> Array:
    """The same numbers in another memory layout."""
    if not array.ndim:
        return array
    if way == "fortran":
        return np.asfortranarray(array)
    if way == "reversed":
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if way == "sparse":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
        wide[..., 1::2] = array
        return wide[..., 1::2]
    if way == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
        raw[:] = np.frombuffer(array.tobytes(), np.uint8)
        return raw.view(array.dtype).reshape(array.shape)
    return array
