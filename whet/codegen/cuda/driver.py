"""The driver of a GPU, as far as segments need it.

    module = driver.load(cubin)
    ready = Ready(driver.function(module, launch), launch, Parameters([x, y]), early=True)
    recording = driver.capture([ready])
    driver.play(recording, stream)

Addresses and streams are numbers; what else a driver makes is its own affair.  `CudaDriver` in
`whet.codegen.cuda.bindings` is the real one; tests have one that computes in NumPy arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from whet.codegen.cuda.launch import Launch

Handle = Any
"""A module, function, event or graph, which nobody but its driver looks into."""
Stream = int
LEGACY_STREAM: Stream = 1
"""The stream that work is on when nobody says otherwise; DLPack has the same number for it."""
THREAD_STREAM: Stream = 2
"""The stream that every thread has of its own: one number for many streams."""


class Parameters:
    """The addresses that a kernel is given, in memory where a driver reads them."""

    __slots__ = ("addresses", "location", "pointers")

    def __init__(self, addresses: Sequence[int]) -> None:
        count = max(len(addresses), 1)
        self.addresses = (ctypes.c_uint64 * count)(*addresses)
        first = ctypes.addressof(self.addresses)
        self.pointers = (ctypes.c_void_p * count)(*(first + 8 * n for n in range(count)))
        self.location = ctypes.addressof(self.pointers)


@dataclass(frozen=True, eq=False, slots=True)
class Ready:
    """A kernel that can be launched."""

    function: Handle
    launch: Launch
    parameters: Parameters
    early: bool
    """Whether it may be launched before the kernel in front of it has ended."""


@dataclass(frozen=True, eq=False, slots=True)
class Recording:
    """Launches that are played together, and what the driver knows each of them by."""

    kernels: tuple[Ready, ...]
    graph: Handle
    nodes: tuple[Handle, ...]


class Driver(Protocol):
    """What segments ask of a GPU.  `WH1010` for what it refuses, `WH1005` if memory is full.

    Copies, clearing and kernels take their turn on a stream and go on after the call has
    returned.
    """

    def activate(self) -> None:
        """Makes the GPU that of the calling thread: before all else in a thread."""

    # ----------------------------------------------------------------------------------- memory
    def allocate(self, nbytes: int) -> int:
        """The address of new memory of the GPU, a multiple of 256."""

    def free(self, address: int) -> None:
        """Gives memory back when all that was asked for before is done."""

    def allocate_host(self, nbytes: int) -> int:
        """The address of new memory of this process that the GPU copies without the CPU."""

    def free_host(self, address: int) -> None: ...

    def copy_in(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """From this process to the GPU."""

    def copy_out(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """From the GPU to this process."""

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """Within the GPU."""

    def clear(self, address: int, nbytes: int, stream: Stream) -> None: ...

    # ---------------------------------------------------------------------------------- kernels
    def load(self, cubin: bytes) -> Handle: ...

    def unload(self, module: Handle) -> None: ...

    def function(self, module: Handle, launch: Launch) -> Handle:
        """A kernel of the module, allowed the shared memory and the cluster of its launch."""

    def launch(self, kernel: Ready, stream: Stream) -> None: ...

    def capture(self, kernels: Sequence[Ready]) -> Recording:
        """The launches, to be played as often as one likes."""

    def change(self, recording: Recording, number: int) -> None:
        """Makes a recording heed the present parameters of one of its kernels from now on."""

    def play(self, recording: Recording, stream: Stream) -> None: ...

    def discard(self, recording: Recording) -> None: ...

    # ----------------------------------------------------------------------------------- order
    def new_stream(self) -> Stream:
        """A stream that waits for no other."""

    def close_stream(self, stream: Stream) -> None: ...

    def synchronize(self, stream: Stream) -> None:
        """Returns when all that was asked for on the stream is done."""

    def new_event(self, *, timed: bool = False) -> Handle: ...

    def close_event(self, event: Handle) -> None: ...

    def record(self, event: Handle, stream: Stream) -> None:
        """Makes the event that of the work which the stream has now."""

    def wait(self, stream: Stream, event: Handle) -> None:
        """Makes what comes on the stream wait for the event."""

    def finish(self, event: Handle) -> None:
        """Returns when the event has come."""

    def milliseconds(self, first: Handle, last: Handle) -> float:
        """The time between two timed events that have come."""
