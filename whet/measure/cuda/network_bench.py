"""Networks on a GPU, two at a time: each a captured graph, which is played again and again.

Two networks that differ in one kernel have code, constants and arrays in common, and what the last
comparison left on the GPU is there for the next.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from whet.codegen.cuda.driver import Driver, Handle, Parameters, Ready, Recording
from whet.codegen.cuda.memory import DeviceMemory
from whet.core.dtypes import parse_dtype
from whet.core.types import Array
from whet.measure.cuda.network_jobs import NetworkJob, Piece
from whet.measure.running import require_in_time
from whet.measure.statistics import Clock
from whet.runtime.arrays import address_of

BLOCK_BYTES = 1 << 20
"""Numbers that are made once and copied until a piece is full."""
LARGEST = 0.1
"""Numbers are between this and its opposite."""


@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """A network on the GPU."""

    memory: tuple[DeviceMemory, ...]
    recording: Recording


class NetworkBench:
    """Networks on the GPU of this process."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.stream = driver.new_stream()
        self.first, self.last = driver.new_event(timed=True), driver.new_event(timed=True)
        self.shared: dict[Piece, DeviceMemory] = {}
        self.modules: dict[str, Handle] = {}
        self.loaded: dict[NetworkJob, LoadedNetwork] = {}

    def load(self, job: NetworkJob, held: Mapping[str, Array]) -> LoadedNetwork:
        """The network of a job, whose code is `held`."""
        if job not in self.loaded:
            self.loaded[job] = self._load(job, held)
        return self.loaded[job]

    def _load(self, job: NetworkJob, held: Mapping[str, Array]) -> LoadedNetwork:
        for name in dict.fromkeys(call.cubin for call in job.calls):
            if name not in self.modules:
                self.modules[name] = self.driver.load(held[name].tobytes())
        memory = tuple(self._memory(piece) for piece in job.pieces)
        self.driver.synchronize(self.stream)
        kernels = [
            Ready(
                self.driver.function(self.modules[call.cubin], call.launch),
                call.launch,
                Parameters([memory[piece].address + at for piece, at in call.places]),
                job.early and call.launch.awaits,
            )
            for call in job.calls
        ]
        return LoadedNetwork(memory, self.driver.capture(kernels))

    def _memory(self, piece: Piece) -> DeviceMemory:
        if piece in self.shared:
            return self.shared[piece]
        made = DeviceMemory(self.driver, piece.nbytes)
        self._fill(made, piece)
        if piece.key:
            self.shared[piece] = made
        return made

    def _fill(self, memory: DeviceMemory, piece: Piece) -> None:
        driver, address, dtype = self.driver, memory.address, parse_dtype(piece.dtype)
        if not piece.nbytes:
            return
        if not dtype.is_float:
            driver.clear(address, piece.nbytes, self.stream)
            return
        count = min(piece.nbytes, BLOCK_BYTES) // dtype.itemsize
        numbers = np.random.default_rng(0).uniform(-LARGEST, LARGEST, count).astype(dtype.numpy)
        driver.copy_in(address, address_of(numbers), numbers.nbytes, self.stream)
        driver.synchronize(self.stream)
        done = numbers.nbytes
        while done < piece.nbytes:
            more = min(done, piece.nbytes - done)
            driver.copy(address + done, address, more, self.stream)
            done += more

    def try_once(self, network: LoadedNetwork, limit: float) -> None:
        """Plays the network; `TooSlow` if that takes longer than it may."""
        start = time.perf_counter()
        self.driver.play(network.recording, self.stream)
        self.driver.synchronize(self.stream)
        require_in_time(time.perf_counter() - start, limit)

    def clock(self, network: LoadedNetwork) -> Clock:
        """Times replays that follow each other at once."""
        driver = self.driver

        def clock(replays: int) -> float:
            driver.record(self.first, self.stream)
            for _ in range(replays):
                driver.play(network.recording, self.stream)
            driver.record(self.last, self.stream)
            driver.finish(self.last)
            return driver.milliseconds(self.first, self.last) * 1e-3

        return clock

    def keep(self, jobs: Collection[NetworkJob]) -> None:
        """Gives back what all other networks have on the GPU."""
        for job in [job for job in self.loaded if job not in jobs]:
            self.driver.discard(self.loaded.pop(job).recording)
        pieces = {piece for job in self.loaded for piece in job.pieces}
        self.shared = {piece: memory for piece, memory in self.shared.items() if piece in pieces}
        names = {call.cubin for job in self.loaded for call in job.calls}
        for name in [name for name in self.modules if name not in names]:
            self.driver.unload(self.modules.pop(name))
