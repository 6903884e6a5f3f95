"""Kernels on a GPU, one at a time: tried on memory with zones around it, then timed.

Timing replays a captured graph of calls, each launched before the one in front of it has ended
where it allows that, as in a model; every call reads its constants from other copies than the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whet.codegen.cuda.driver import Driver, Handle, Parameters, Ready, Recording
from whet.codegen.cuda.memory import DeviceMemory
from whet.core.types import Array
from whet.measure.cuda.jobs import MOST_COPIES, MOST_COPY_BYTES, Check, GpuJob
from whet.measure.cuda.judging import Layout, fault, filled, lay_out
from whet.measure.running import WrongAnswer, require_in_time
from whet.measure.statistics import Clock
from whet.runtime.arrays import address_of

MOST_CALLS = 24
"""Calls of one graph: enough for what starts and ends it to be of no importance."""
GRAPH_SECONDS = 2e-3
"""Graphs of slow kernels have fewer calls, and take about this long."""


@dataclass(eq=False)
class LoadedKernel:
    """A kernel on the GPU, with the memory of its parameters."""

    job: GpuJob
    layout: Layout
    module: Handle
    functions: Sequence[Handle]
    memory: DeviceMemory
    recordings: list[Recording] = field(default_factory=list)
    copies: DeviceMemory | None = None

    def calls(self, constants: int = 0) -> list[Ready]:
        """The launches of one call whose constants lie so many bytes behind the first copy."""
        job, base = self.job, self.memory.address
        table = [
            base + self.layout.base(n) + (constants if job.parameters[n].kind == "constant" else 0)
            for n in job.table
        ]
        return [
            Ready(function, launch, Parameters(table), job.early and launch.awaits)
            for function, launch in zip(self.functions, job.launches, strict=True)
        ]


FLOOD_BYTES = 128 << 20
"""Written in front of every replay, so that constants come from memory, as in a network whose
constants do not stay in the second-level cache.  What each call reads is a copy of its own."""


class GpuBench:
    """The GPU of this process, which runs one kernel at a time."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.stream = driver.new_stream()
        self.first, self.last = driver.new_event(timed=True), driver.new_event(timed=True)
        self.flood = DeviceMemory(driver, FLOOD_BYTES)

    def load(self, job: GpuJob, cubin: bytes) -> LoadedKernel:
        layout = lay_out(job.parameters)
        module = self.driver.load(cubin)
        functions = [self.driver.function(module, launch) for launch in job.launches]
        return LoadedKernel(job, layout, module, functions, self._memory(layout.nbytes))

    def settle(self) -> None:
        """Waits for all that was asked for; an error if the GPU has failed for good."""
        self.driver.synchronize(self.stream)

    def drop(self, kernels: Sequence[LoadedKernel]) -> None:
        """Gives back what kernels have on the GPU."""
        for kernel in kernels:
            for recording in kernel.recordings:
                self.driver.discard(recording)
            self.driver.unload(kernel.module)

    # --------------------------------------------------------------------------------- checking
    def check(
        self,
        kernel: LoadedKernel,
        held: Mapping[str, Array],
        beat: Callable[[], None],
        limit: float,
    ) -> None:
        """Runs the kernel once on the values of every check."""
        for check in kernel.job.checks:
            self._try(kernel, check, held, beat, limit)

    def _try(
        self,
        kernel: LoadedKernel,
        check: Check,
        held: Mapping[str, Array],
        beat: Callable[[], None],
        limit: float,
    ) -> None:
        driver, layout, stream = self.driver, kernel.layout, self.stream
        values = {
            n: held[check.key(p.array)]
            for n, p in enumerate(layout.parameters)
            if p.kind != "workspace"
        }
        given = {n: v for n, v in values.items() if layout.parameters[n].kind != "output"}
        before, after = filled(layout, given), np.empty(layout.nbytes, np.uint8)
        driver.copy_in(kernel.memory.address, address_of(before), before.nbytes, stream)
        driver.synchronize(stream)
        beat()
        require_in_time(self._call(kernel), limit)
        beat()
        driver.copy_out(address_of(after), kernel.memory.address, after.nbytes, stream)
        driver.synchronize(stream)
        problem = fault(layout, before, after, values, check.allowed)
        if problem is not None:
            raise WrongAnswer(problem)

    def _call(self, kernel: LoadedKernel) -> float:
        """Runs the kernel once: seconds from its launch to the end, as this process sees it."""
        start = time.perf_counter()
        for ready in kernel.calls():
            self.driver.launch(ready, self.stream)
        self.driver.synchronize(self.stream)
        return time.perf_counter() - start

    # ----------------------------------------------------------------------------------- timing
    def clock(self, kernel: LoadedKernel) -> tuple[Clock, int]:
        """Times replays of a graph, and the number of calls in it."""
        driver, size = self.driver, kernel.layout.constant_bytes
        count = max(1, min(MOST_CALLS, int(GRAPH_SECONDS / self._call(kernel))))
        copies = max(1, min(count, MOST_COPIES, MOST_COPY_BYTES // size if size else 1))
        places = [0]
        if copies > 1:
            kernel.copies = self._memory((copies - 1) * size)
            first = kernel.memory.address
            for n in range(copies - 1):
                target = kernel.copies.address + n * size
                driver.copy(target, first, size, self.stream)
                places.append(target - first)
        driver.synchronize(self.stream)
        recording = driver.capture(
            [ready for n in range(count) for ready in kernel.calls(places[n % copies])]
        )
        kernel.recordings.append(recording)

        def clock(replays: int) -> float:
            total = 0.0
            for _ in range(replays):
                if size:
                    driver.clear(self.flood.address, self.flood.nbytes, self.stream)
                driver.record(self.first, self.stream)
                driver.play(recording, self.stream)
                driver.record(self.last, self.stream)
                driver.finish(self.last)
                total += driver.milliseconds(self.first, self.last) * 1e-3
            return total

        return clock, count

    def _memory(self, nbytes: int) -> DeviceMemory:
        return DeviceMemory(self.driver, nbytes)
