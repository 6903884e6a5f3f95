"""What one call of a segment at a time works in: memory, a stream, and its launches as a graph."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.build.cuda.arrays import DeviceArray, DeviceView
from whet.build.cuda.loaded import Loaded
from whet.build.cuda.takes import Takes
from whet.codegen.cuda.driver import LEGACY_STREAM, THREAD_STREAM, Handle, Recording, Stream
from whet.codegen.cuda.memory import DeviceMemory, HostMemory, round_up
from whet.core.types import Array, Shape

ArrayType = tuple[Shape, np.dtype[Any]]


def bytes_of(kind: ArrayType) -> int:
    """The size of an array."""
    return math.prod(kind[0]) * kind[1].itemsize


class Context:
    """Memory and launches of one segment, on one stream."""

    def __init__(
        self,
        loaded: Loaded,
        inputs: Sequence[ArrayType],
        outputs: Sequence[ArrayType],
        stream: Stream | None,
    ) -> None:
        self.loaded, self.driver = loaded, loaded.driver
        image, driver = loaded.image, loaded.driver
        self.types, self.outputs = (*inputs, *outputs), tuple(outputs)
        self.owns_stream = stream is None
        self.stream: Stream = driver.new_stream() if stream is None else stream
        self.lasting = stream is None or stream == LEGACY_STREAM
        """Whether the stream is there whenever it is asked for; a caller's may be gone."""
        self.waits = bool(image.status_bytes) or stream == THREAD_STREAM
        """Whether calls wait for their end: something is looked at, or the next call that has this
        context may be of another thread, on another stream of the same number."""
        self.ready = driver.new_event()
        status_start = round_up(image.arena_bytes)
        self.arena = DeviceMemory(driver, status_start + image.status_bytes)
        # Zeroed once: borders keep their memory to themselves and are never written again.
        driver.clear(self.arena.address, self.arena.nbytes, self.stream)
        self.status_address = self.arena.address + status_start
        self.status = HostMemory(driver, image.status_bytes)
        tables = image.addresses(
            self.arena.address, loaded.constants.address, [m.address for m in loaded.shared],
            self.status_address,
        )  # fmt: skip
        self.takes = Takes(loaded, tables)
        self.staging: Staging | None = None
        self.waiting: list[list[DeviceMemory]] = [[] for _ in outputs]
        """Memory of results that nobody holds any more, by output."""

    def play(self, addresses: list[int]) -> None:
        """Launches all kernels on the caller's arrays at these addresses, inputs first."""
        if self.loaded.functions:
            self.driver.play(self.takes.find(addresses), self.stream)

    @property
    def recording(self) -> Recording:
        """What was played last."""
        return self.takes.made[0].recording

    def note_end(self) -> None:
        """Makes `done` speak of the work that the stream has now, if it could not ask later."""
        if not self.lasting:
            self.driver.record(self.ready, self.stream)

    def done(self) -> Handle:
        """An event that comes when the work of all calls so far is done."""
        if self.lasting:
            self.driver.record(self.ready, self.stream)
        return self.ready

    def new_result(self, number: int) -> DeviceArray:
        """An array on the GPU with any contents, for one of the outputs."""
        (shape, dtype), waiting = self.outputs[number], self.waiting[number]
        try:
            memory = waiting.pop()  # one operation, hence safe between threads
        except IndexError:
            memory = DeviceMemory(self.driver, bytes_of((shape, dtype)))
        return DeviceArray(self, memory, shape, dtype, waiting)

    def staged(self) -> Staging:
        """The places of arrays that kernels cannot use where they are, made at first need."""
        if self.staging is None:
            self.staging = Staging(self)
        return self.staging

    # --------------------------------------------------------------------------------- statuses
    def ask_status(self) -> None:
        """Begins to copy the statuses to this process."""
        nbytes = self.loaded.image.status_bytes
        self.driver.copy_out(self.status.address, self.status_address, nbytes, self.stream)

    def told_status(self) -> tuple[list[str], bool]:
        """The names of what met something impossible, and whether there was an alarm, once the
        statuses are here; the next call begins anew."""
        *statuses, alarm = self.status.bytes.view(np.int64)
        image = self.loaded.image
        refused = [name for name, status in zip(image.watched, statuses, strict=True) if status]
        if refused or alarm:
            self.driver.clear(self.status_address, image.status_bytes, self.stream)
        return refused, bool(alarm)

    def __del__(self) -> None:
        if not hasattr(self, "staging") or sys.is_finalizing():
            return
        self.driver.activate()
        self.driver.finish(self.done())
        self.driver.close_event(self.ready)
        if self.owns_stream:
            self.driver.close_stream(self.stream)
        self.takes.discard()


class Staging:
    """Room on the GPU and in this process for each array of a call, at fixed addresses."""

    def __init__(self, context: Context) -> None:
        self.driver, self.stream = context.driver, context.stream
        starts, end = [], 0
        for kind in context.types:
            starts.append(end)
            end += round_up(bytes_of(kind))
        self.device = DeviceMemory(self.driver, end)
        self.host = HostMemory(self.driver, end)
        self.starts = starts
        self.addresses = [self.device.address + start for start in starts]
        self.arrays: list[Array] = [
            self.host.bytes[start : start + bytes_of(kind)].view(kind[1]).reshape(kind[0])
            for start, kind in zip(starts, context.types)
        ]

    def bring(self, number: int, array: Array | DeviceView) -> None:
        """Begins to copy an input to its place on the GPU."""
        if isinstance(array, DeviceView):
            self.driver.copy(self.addresses[number], array.address, array.nbytes, self.stream)
            return
        here = self.arrays[number]
        np.copyto(here, array, casting="no")
        source = self.host.address + self.starts[number]
        self.driver.copy_in(self.addresses[number], source, here.nbytes, self.stream)

    def fetch(self, number: int, array: Array | DeviceView) -> None:
        """Begins to copy an output from its place on the GPU; `deliver` ends it."""
        address = self.addresses[number]
        if isinstance(array, DeviceView):
            self.driver.copy(array.address, address, array.nbytes, self.stream)
        else:
            target = self.host.address + self.starts[number]
            self.driver.copy_out(target, address, array.nbytes, self.stream)

    def deliver(self, number: int, array: Array | DeviceView) -> None:
        """Copies an output that has been fetched into the array of this process."""
        if not isinstance(array, DeviceView):
            np.copyto(array, self.arrays[number], casting="no")
