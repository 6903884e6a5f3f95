"""Memory of a GPU, and of this process for it, that is given back when nobody holds it."""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref

import numpy as np

from whet.codegen.cuda.driver import Driver
from whet.core.types import Array
from whet.runtime.arrays import address_of

ALIGNMENT = 256
"""Memory of a GPU starts at multiples of this."""


def round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class DeviceMemory:
    """Bytes of the GPU."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self.address = driver.allocate(nbytes)
        self.driver, self.nbytes = driver, nbytes

    def __del__(self) -> None:
        # What could not be allocated has no address; and a process that ends gives all back.
        if hasattr(self, "nbytes") and not sys.is_finalizing():
            self.driver.free(self.address)


class HostMemory:
    """Bytes of this process that the GPU copies without the CPU's help."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self.address = driver.allocate_host(nbytes)
        self.driver = driver
        room = (ctypes.c_ubyte * nbytes).from_address(self.address)
        self.bytes: Array = np.ctypeslib.as_array(room)

    def __del__(self) -> None:
        if hasattr(self, "driver") and not sys.is_finalizing():
            self.driver.free_host(self.address)


def uploaded(driver: Driver, data: Array) -> DeviceMemory:
    """A copy of the bytes on the GPU."""
    memory = DeviceMemory(driver, data.size)
    if data.size:
        stream = driver.new_stream()
        driver.copy_in(memory.address, address_of(data), data.size, stream)
        driver.synchronize(stream)
        driver.close_stream(stream)
    return memory


class _Process:
    """The shared constants that this process has on GPUs, by driver and key."""

    lock = threading.Lock()
    held: weakref.WeakValueDictionary[tuple[int, str], DeviceMemory] = weakref.WeakValueDictionary()


def shared_memory(driver: Driver, key: str, data: Array) -> DeviceMemory:
    """The copy of a shared constant on the GPU: one for all segments of this process."""
    with _Process.lock:
        found = _Process.held.get((id(driver), key))
        if found is None:
            found = uploaded(driver, data)
            _Process.held[id(driver), key] = found
        return found
