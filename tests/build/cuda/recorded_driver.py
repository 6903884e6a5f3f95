"""A driver without a GPU, for which sources are names of loop programs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tools.cuda_on_cpu.driver import ProcessDriver
from whet.codegen.cuda.driver import Handle, Ready
from whet.codegen.cuda.launch import Launch
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


class RecordedDriver(ProcessDriver):
    """Runs the loop program of a kernel in the interpreter."""

    def __init__(self, generator: RecordedGenerator | None = None) -> None:
        super().__init__()
        self.generator = generator or RecordedGenerator()

    def function(self, module: Handle, launch: Launch) -> Handle:
        assert launch.symbol.startswith(module.decode())
        return launch.symbol

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
