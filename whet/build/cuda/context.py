"""What one call of a segment at a time works in: memory, a stream, and its launches as a graph."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.build.cuda.arrays import DeviceArray, DeviceView
from whet.build.cuda.loaded import Loaded
from whet.codegen.cuda.driver import Parameters, Ready, Recording, Stream
from whet.codegen.cuda.memory import DeviceMemory, HostMemory, round_up
from whet.core.types import Array, Shape

ArrayType = tuple[Shape, np.dtype[Any]]


def _nbytes(kind: ArrayType) -> int:
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
        self.ready = driver.new_event()
        """Comes when the last call's work is done."""
        status_start = round_up(image.arena_bytes)
        self.arena = DeviceMemory(driver, status_start + image.status_bytes)
        # Zeroed once: borders keep their memory to themselves and are never written again.
        driver.clear(self.arena.address, self.arena.nbytes, self.stream)
        self.status_address = self.arena.address + status_start
        self.status = HostMemory(driver, image.status_bytes)
        self.kernels = self._kernels()
        self.addresses = [0] * len(self.types)
        self.recording: Recording | None = None
        self.staging: Staging | None = None
        self.waiting: list[list[DeviceMemory]] = [[] for _ in outputs]

    def _kernels(self) -> list[Ready]:
        loaded, image = self.loaded, self.loaded.image
        tables = image.addresses(
            self.arena.address, loaded.constants.address, [m.address for m in loaded.shared],
            self.status_address,
        )  # fmt: skip
        return [
            Ready(function, call.launch, Parameters(table), early)
            for function, call, table, early in zip(
                loaded.functions, image.calls, tables, loaded.early, strict=True
            )
        ]

    def play(self, addresses: list[int]) -> None:
        """Launches all kernels on the caller's arrays at these addresses, inputs first.

        Recorded launches are changed where addresses are not those of the last call.
        """
        if addresses != self.addresses:
            changed: set[int] = set()
            for number, address in enumerate(addresses):
                if address != self.addresses[number]:
                    for kernel, position in self.loaded.uses[number]:
                        self.kernels[kernel].parameters.addresses[position] = address
                        changed.add(kernel)
            self.addresses = addresses
            if self.recording is not None:
                for kernel in changed:
                    self.driver.change(self.recording, kernel)
        if not self.kernels:
            return
        if self.recording is None:
            self.recording = self.driver.capture(self.kernels)
        self.driver.play(self.recording, self.stream)

    def new_results(self) -> list[DeviceArray]:
        """Arrays on the GPU with any contents, for all outputs."""
        made = []
        for kind, waiting in zip(self.outputs, self.waiting):
            try:
                memory = waiting.pop()  # one operation, hence safe between threads
            except IndexError:
                memory = DeviceMemory(self.driver, _nbytes(kind))
            made.append(DeviceArray(self, memory, *kind, waiting))
        return made

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
        if self.owns_stream:
            self.driver.synchronize(self.stream)
            self.driver.close_stream(self.stream)
        self.driver.finish(self.ready)
        self.driver.close_event(self.ready)
        if self.recording is not None:
            self.driver.discard(self.recording)


class Staging:
    """Room on the GPU and in this process for each array of a call, at fixed addresses."""

    def __init__(self, context: Context) -> None:
        self.driver, self.stream = context.driver, context.stream
        starts, end = [], 0
        for kind in context.types:
            starts.append(end)
            end += round_up(_nbytes(kind))
        self.device = DeviceMemory(self.driver, end)
        self.host = HostMemory(self.driver, end)
        self.starts = starts
        self.addresses = [self.device.address + start for start in starts]
        self.arrays: list[Array] = [
            self.host.bytes[start : start + _nbytes(kind)].view(kind[1]).reshape(kind[0])
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
