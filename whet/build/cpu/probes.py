"""Probes of the hardware, ready to be called: each does a known amount of work of one kind."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from whet.build.cpu.threads import Threads
from whet.codegen.llvm.compile import Library
from whet.codegen.llvm.generator import LlvmGenerator
from whet.codegen.llvm.probecode import (
    CHAIN_STEPS,
    CHAINS,
    RESULT_LANES,
    STREAMS,
    UNROLL,
    broadcast_ir,
    chain_ir,
    fma_ir,
    stream_ir,
)
from whet.core.caching import FileCache
from whet.core.cpu import CpuTarget
from whet.core.types import Array

STREAM_PIECE_BYTES = 1 << 20
"""What a thread takes at a time from a stream through memory."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A call and how much it does: operations or bytes."""

    call: Callable[[], None]
    work: float


@dataclass(frozen=True)
class Prober:
    """Makes probes that run on so many threads of the target, which must be this machine."""

    target: CpuTarget
    threads: int
    cache: FileCache

    def fma(self, rounds: int, pieces: int, *, lanes: int, chains: int = CHAINS) -> Probe:
        """Multiply-adds of vectors in registers; one chain shows how long each waits."""
        ir = fma_ir(lanes, chains)
        return Probe(self._rounds(ir, rounds, pieces), float(chains * rounds * pieces))

    def chain(self, rounds: int) -> Probe:
        """Dependent operations on integers, one per cycle."""
        return Probe(self._rounds(chain_ir(), rounds, 1), float(CHAIN_STEPS * rounds))

    def broadcast(self, numbers: Array, times: int, *, lanes: int) -> Probe:
        """Loads every number of the array into all lanes of a vector, again and again."""
        count = numbers.size // UNROLL * UNROLL
        call = self._caller(broadcast_ir(lanes), [numbers] * 3, (4 * count, 0), times)
        return Probe(call, float(count * times))

    def near(self, array: Array, times: int) -> Probe:
        """Reads all of an array again and again, from the cache that it fits into."""
        lanes = self.target.lanes(32)
        step = UNROLL * lanes * 4
        nbytes = array.nbytes // step * step
        call = self._caller(stream_ir("read", lanes), [array] * 3, (nbytes, 0), times)
        return Probe(call, float(nbytes * times))

    def parts(self, array: Array, count: int) -> Probe:
        """Reads so many parts of an array at once, each thread the same part in every call."""
        nbytes = array.nbytes // count
        ir = stream_ir("read", self.target.lanes(32))
        call = self._caller(ir, [array] * 3, (nbytes, nbytes), count)
        return Probe(call, float(nbytes * count))

    def stream(self, kind: str, arrays: Sequence[Array], calls: int = 1) -> Probe:
        """Goes through arrays a, b, c of the same size, in one of the ways of `STREAMS`.

        It takes so many calls to go through all; then it starts again.
        """
        moved, nbytes = STREAMS[kind], arrays[0].nbytes // calls
        # The C library chooses its way by the size of each call, so a thread makes one.
        piece = nbytes // self.threads if kind == "memcpy" else STREAM_PIECE_BYTES
        pieces = nbytes // piece
        ir = stream_ir(kind, self.target.lanes(32))
        call = self._caller(ir, arrays, (piece, piece), pieces, calls)
        return Probe(call, float(moved * piece * pieces))

    def _rounds(self, ir: str, rounds: int, pieces: int) -> Callable[[], None]:
        results = np.zeros(pieces * RESULT_LANES, np.float32)
        return self._caller(ir, [results] * 3, (rounds, 0), pieces)

    def _caller(
        self,
        ir: str,
        arrays: Sequence[Array],
        numbers: tuple[int, int],
        pieces: int,
        calls: int = 1,
    ) -> Callable[[], None]:
        """A call of the module's `run`, each time on the next of so many parts of the arrays."""
        threads = Threads(self.threads, self.cache)
        objects = LlvmGenerator(self.target).objects([ir, *threads.code], self.cache)
        library = Library(objects, threads.symbols)
        native = library.function("run", ctypes.c_void_p, ctypes.c_int64)
        starts = np.array([*(a.ctypes.data for a in arrays), *numbers], np.int64)
        step = np.array([numbers[1] * pieces] * len(arrays) + [0] * len(numbers), np.int64)
        contexts = [starts + n * step for n in range(calls)]
        turns = cycle([c.ctypes.data for c in contexts])

        def call(keep: object = (library, arrays, contexts)) -> None:
            """Keeps what the code points to."""
            threads.apply()
            native(next(turns), pieces)

        return call
