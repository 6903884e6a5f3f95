"""A driver without a GPU: device memory is memory of this process, and everything is written down.

A launch runs the loop program of its kernel in the interpreter, at the moment when a stream would
come to it: at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from whet.codegen.cuda.driver import Handle, Ready, Recording, Stream
from whet.codegen.cuda.launch import Launch
from whet.codegen.cuda.memory import ALIGNMENT
from whet.codegen.generator import Source
from whet.core.caching import FileCache
from whet.core.errors import WhetError
from whet.core.types import Array
from whet.ir.interpreter import run_block
from whet.ir.program import Buffer, Program
from whet.ir.tensor import Tensor


class RecordedGenerator:
    """Sources that are names of programs, which are kept for the driver."""

    language = "recorded"

    def __init__(self, *, watches: bool = False) -> None:
        self.programs: dict[str, Program] = {}
        self.watches = watches

    def source(self, program: Program, limits: Mapping[Buffer, int] | None = None) -> Source:
        self.programs[program.name] = program
        return Source(program.name, self.watches)

    def job(self, text: str) -> dict[str, str]:
        return {"text": text}

    def objects(self, texts: Sequence[str], cache: FileCache) -> list[bytes]:
        return [text.encode() for text in texts]

    def listing(self, text: str) -> str:
        return text


class RecordedDriver:
    """See `whet.codegen.cuda.driver.Driver`; `log` is what was asked for, in order."""

    def __init__(self, generator: RecordedGenerator | None = None) -> None:
        self.generator = generator or RecordedGenerator()
        self.log: list[tuple[Any, ...]] = []
        self.memory: dict[int, Array] = {}
        self.pinned: dict[int, Array] = {}
        self.numbers = iter(range(100, 10**6))
        self.streams: set[Stream] = set()
        self.refused_bytes = 1 << 40

    def ops(self, *names: str) -> list[tuple[Any, ...]]:
        """What was asked for of these kinds."""
        return [entry for entry in self.log if entry[0] in names]

    def activate(self) -> None:
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

    def function(self, module: Handle, launch: Launch) -> Handle:
        assert launch.symbol.startswith(module.decode())
        return launch.symbol

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

    def _run(self, kernel: Ready, addresses: Sequence[int]) -> None:
        """One statement of a program, on the memory at the addresses."""
        name, _, number = kernel.launch.symbol.rpartition("_")
        program = self.generator.programs[name]
        buffers = (*program.inputs, *program.outputs, *program.workspace)
        memory: dict[Tensor, Array] = {b: self._view(b, a) for b, a in zip(buffers, addresses)}
        try:
            with np.errstate(all="ignore"):
                run_block([program.body[int(number)]], memory, {})
        except WhetError:
            assert self.generator.watches
            self._words(addresses[len(buffers)], 1)[0] = 1

    def _words(self, address: int, count: int) -> Array:
        self.check(address, 8 * count)
        return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address))

    def _view(self, buffer: Buffer, address: int) -> Array:
        size = buffer.dtype.itemsize
        steps = list(zip(buffer.shape, buffer.element_strides))
        first = buffer.offset + sum(min((d - 1) * s, 0) for d, s in steps)
        last = buffer.offset + sum(max((d - 1) * s, 0) for d, s in steps)
        if 0 in buffer.shape:
            return np.zeros(buffer.shape, buffer.dtype.numpy)
        self.check(address + first * size, (last - first + 1) * size)
        room = (ctypes.c_ubyte * ((last - first + 1) * size)).from_address(address + first * size)
        flat = np.frombuffer(room, np.uint8).view(buffer.dtype.numpy)
        strides = [s * size for s in buffer.element_strides]
        return as_strided(flat[buffer.offset - first :], buffer.shape, strides)

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

    def close_event(self, event: Handle) -> None:
        pass

    def record(self, event: Handle, stream: Stream) -> None:
        self.log.append(("record", event, stream))

    def wait(self, stream: Stream, event: Handle) -> None:
        self.log.append(("wait", stream, event))

    def finish(self, event: Handle) -> None:
        self.log.append(("finish", event))

    def milliseconds(self, first: Handle, last: Handle) -> float:
        return 0.0


def _room(nbytes: int) -> tuple[int, Array]:
    """Bytes at an aligned address."""
    room = np.zeros(nbytes + 2 * ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room.ctypes.data + start, room[start : start + nbytes]
