"""Arrays on a GPU: those of a caller, and those that a segment has made.

y = model(x)                 x and y on the GPU
torch.from_dlpack(y)         the same memory
y.numpy()                    a copy in this process
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from whet.codegen.cuda.driver import LEGACY_STREAM, Driver, Stream
from whet.codegen.cuda.memory import DeviceMemory
from whet.core.types import Array, Shape
from whet.runtime.arrays import address_of
from whet.runtime.executable import Adopted
from whet.runtime.results import KEPT_ROOMS

if TYPE_CHECKING:
    from whet.build.cuda.context import Context

CUDA_DEVICE = (2, 0)
"""The first GPU, as DLPack calls it."""
_UNORDERED = -1
"""The stream of a caller who sees to the order alone."""


class DeviceView(Adopted):
    """A contiguous array on the GPU."""

    __slots__ = ("address", "driver", "dtype", "follows", "owner", "shape", "stream")

    def __init__(
        self,
        driver: Driver,
        address: int,
        shape: Shape,
        dtype: np.dtype[Any],
        stream: Stream,
        follows: bool,
        owner: Any,
    ) -> None:
        self.driver, self.address, self.shape, self.dtype = driver, address, shape, dtype
        self.stream, self.follows, self.owner = stream, follows, owner
        """Of `stream`: where its contents are made.  Of `follows`: whether its memory gets another
        use only behind what is on that stream now.  Of `owner`: what keeps the memory alive."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def numpy(self) -> Array:
        """A copy in this process."""
        driver, made = self.driver, np.empty(self.shape, self.dtype)
        driver.activate()
        driver.copy_out(address_of(made), self.address, made.nbytes, self.stream)
        driver.synchronize(self.stream)
        return made

    def assign(self, array: Array) -> None:
        driver, source = self.driver, np.asarray(array, order="C")
        driver.activate()
        driver.copy_in(self.address, address_of(source), source.nbytes, self.stream)
        driver.synchronize(self.stream)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on the GPU cannot be read without a copy")
        made = self.numpy()
        return made if dtype is None else made.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype}{list(self.shape)} on the GPU>"


class DeviceArray(DeviceView):
    """A result of a segment; its memory is used again when nobody holds it."""

    __slots__ = ("exported", "home", "waiting")

    def __init__(
        self,
        home: Context,
        memory: DeviceMemory,
        shape: Shape,
        dtype: np.dtype[Any],
        waiting: list[DeviceMemory],
    ) -> None:
        # As `DeviceView` does it, without another call: every call of a segment makes such arrays.
        self.driver, self.address, self.shape, self.dtype = (
            home.driver,
            memory.address,
            shape,
            dtype,
        )
        self.stream, self.follows, self.owner = home.stream, True, memory
        self.home, self.waiting = home, waiting
        self.exported = False
        """Whether it may be read on a stream that its memory's next use does not wait for."""

    def numpy(self) -> Array:
        # Its stream may be gone by now; the event of its context is not.
        driver, made = self.driver, np.empty(self.shape, self.dtype)
        driver.activate()
        driver.finish(self.home.done())
        driver.copy_out(address_of(made), self.address, made.nbytes, LEGACY_STREAM)
        driver.synchronize(LEGACY_STREAM)
        return made

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA_DEVICE

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        from whet.build.cuda.lending import capsule_of

        if copy or dl_device not in (None, CUDA_DEVICE):
            raise BufferError("an array on the GPU is lent as it is, without a copy")
        reader = LEGACY_STREAM if stream is None else stream
        if reader != self.stream:
            self.exported = True
            if reader != _UNORDERED:
                self.driver.activate()
                self.driver.wait(reader, self.home.done())
        return capsule_of(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.isbuiltin != 1:  # so that the object seems to have no such interface
            raise AttributeError(f"the interface has no name for {self.dtype}")
        self.exported = True
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": self.stream,
        }

    def __del__(self) -> None:
        # Memory that others may still read is freed instead, which waits for them.
        if not self.exported and len(self.waiting) < KEPT_ROOMS:
            self.waiting.append(self.owner)
