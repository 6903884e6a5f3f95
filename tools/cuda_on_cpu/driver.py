"""Drivers whose GPU is this process: device memory is memory of it, and streams are always done."""

from __future__ import annotations

import ctypes
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.cuda_on_cpu.compiled import Compiled, Range
from whet.codegen.cuda.driver import Handle, Ready, Recording, Stream
from whet.codegen.cuda.launch import Launch
from whet.codegen.cuda.memory import ALIGNMENT
from whet.core.errors import WhetError
from whet.core.types import Array


class ProcessDriver(ABC):
    """See `whet.codegen.cuda.driver.Driver`; `log` is what was asked for, in order.

    A launch runs its kernel at the moment when a stream would come to it: at once.
    """

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.memory: dict[int, Array] = {}
        self.pinned: dict[int, Array] = {}
        self.numbers = iter(range(100, 10**9))
        self.streams: set[Stream] = set()
        self.refused_bytes = 1 << 40

    @abstractmethod
    def _run(self, kernel: Ready, addresses: Sequence[int]) -> None:
        """Runs a kernel on the memory at the addresses."""

    def ops(self, *names: str) -> list[tuple[Any, ...]]:
        """What was asked for of these kinds."""
        return [entry for entry in self.log if entry[0] in names]

    def activate(self) -> None:  # noqa: B027  (there is nothing to choose)
        pass

    # ----------------------------------------------------------------------------------- memory
    def allocate(self, nbytes: int) -> int:
        if nbytes > self.refused_bytes:
            raise WhetError("WH1005", "the GPU has not enough memory")
        address, room = _room(nbytes)
        room[:] = 0xA5  # nobody may count on zeros
        self.memory[address] = room
        self.log.append(("allocate", nbytes))
        return address

    def free(self, address: int) -> None:
        self.log.append(("free", self.memory.pop(address).size))

    def allocate_host(self, nbytes: int) -> int:
        address, room = _room(nbytes)
        self.pinned[address] = room
        return address

    def free_host(self, address: int) -> None:
        del self.pinned[address]

    def copy_in(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        self.check(target, nbytes)
        self.log.append(("copy_in", nbytes, stream))
        ctypes.memmove(target, source, nbytes)

    def copy_out(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        self.check(source, nbytes)
        self.log.append(("copy_out", nbytes, stream))
        ctypes.memmove(target, source, nbytes)

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        self.check(target, nbytes)
        self.check(source, nbytes)
        self.log.append(("copy", nbytes, stream))
        ctypes.memmove(target, source, nbytes)

    def clear(self, address: int, nbytes: int, stream: Stream) -> None:
        self.check(address, nbytes)
        self.log.append(("clear", nbytes, stream))
        ctypes.memset(address, 0, nbytes)

    def check(self, address: int, nbytes: int) -> None:
        """All bytes must lie in one piece of the device's memory."""
        assert any(
            start <= address and address + nbytes <= start + room.size
            for start, room in self.memory.items()
        ), f"{nbytes} bytes at {address:#x} are not the device's"

    # ---------------------------------------------------------------------------------- kernels
    def load(self, cubin: bytes) -> Handle:
        self.log.append(("load", cubin))
        return cubin

    def unload(self, module: Handle) -> None:
        self.log.append(("unload", module))

    @abstractmethod
    def function(self, module: Handle, launch: Launch) -> Handle: ...

    def launch(self, kernel: Ready, stream: Stream) -> None:
        self.log.append(("launch", kernel.launch.symbol, stream))
        self._run(kernel, list(kernel.parameters.addresses))

    def capture(self, kernels: Sequence[Ready]) -> Recording:
        self.log.append(("capture", tuple((k.launch.symbol, k.early) for k in kernels)))
        # As the real one, it heeds the parameters of now, and not those of later.
        nodes = [list(k.parameters.addresses) for k in kernels]
        return Recording(tuple(kernels), next(self.numbers), tuple(nodes))

    def change(self, recording: Recording, number: int) -> None:
        self.log.append(("change", number))
        recording.nodes[number][:] = recording.kernels[number].parameters.addresses

    def play(self, recording: Recording, stream: Stream) -> None:
        self.log.append(("play", recording.graph, stream))
        for kernel, addresses in zip(recording.kernels, recording.nodes):
            self._run(kernel, addresses)

    def discard(self, recording: Recording) -> None:
        self.log.append(("discard", recording.graph))

    # ----------------------------------------------------------------------------------- order
    def new_stream(self) -> Stream:
        stream = next(self.numbers)
        self.streams.add(stream)
        return stream

    def close_stream(self, stream: Stream) -> None:
        self.streams.remove(stream)

    def synchronize(self, stream: Stream) -> None:
        self.log.append(("synchronize", stream))

    def new_event(self, *, timed: bool = False) -> Handle:
        return next(self.numbers)

    def close_event(self, event: Handle) -> None:  # noqa: B027  (an event is a number)
        pass

    def record(self, event: Handle, stream: Stream) -> None:
        self.log.append(("record", event, stream))

    def wait(self, stream: Stream, event: Handle) -> None:
        self.log.append(("wait", stream, event))

    def finish(self, event: Handle) -> None:
        self.log.append(("finish", event))

    def milliseconds(self, first: Handle, last: Handle) -> float:
        return 0.0


class TextDriver(ProcessDriver):
    """Runs the text of kernels, one kernel at a time."""

    def __init__(self, *, checked: bool) -> None:
        super().__init__()
        self.checked = checked
        self.one = threading.Lock()
        """Threads of a library take turns: it has one set of blocks."""

    def function(self, module: Handle, launch: Launch) -> Handle:
        return Compiled(module)

    def _run(self, kernel: Ready, addresses: Sequence[int]) -> None:
        ranges = list(self._ranges(addresses)) if self.checked else []
        with self.one:
            kernel.function.run(kernel.launch, addresses, ranges, early=kernel.early)

    def _ranges(self, addresses: Sequence[int]) -> list[Range]:
        """The pieces of memory that the parameters lie in.  Which bytes are constant, and who may
        write where, only programs know."""
        found: dict[int, Range] = {}
        for start, room in list(self.memory.items()):
            if any(start <= a < start + room.size for a in addresses):
                found[start] = Range(start, room.size, 1, constant=True)
        return list(found.values())


def _room(nbytes: int) -> tuple[int, Array]:
    """Bytes at an aligned address."""
    room = np.zeros(nbytes + 2 * ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room.ctypes.data + start, room[start : start + nbytes]
