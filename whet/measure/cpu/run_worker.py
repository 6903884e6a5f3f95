"""The process that runs kernels: checks the results first, then takes the time.

It may crash or hang at any call of a kernel; before each it says that it is alive.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.codegen.llvm.compile import Library, emit_object, host_cpu
from whet.codegen.llvm.poolcode import process_pool
from whet.core.alignment import ALIGNMENT, aligned, round_up
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.types import Array
from whet.measure.checking import difference
from whet.measure.cpu.jobs import KernelJob, job_from_message
from whet.measure.cpu.memory import GuardedBytes, base_address
from whet.measure.parameters import Parameter, fill, strayed, view
from whet.measure.running import Beat, WrongAnswer, ending, require_in_time
from whet.measure.serving import Answer, physical_memory, restrict, serve
from whet.measure.statistics import (
    WAKING_SECONDS,
    WARM_SECONDS,
    Clock,
    take_samples,
    take_turns,
)

MOST_COPIES = 4096

_REPEAT_IR = """
define void @whet_repeat(ptr %kernel, ptr %tables, i64 %count, i64 %step, i64 %first, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %number = add i64 %first, %i
  %which = urem i64 %number, %count
  %offset = mul i64 %which, %step
  %table = getelementptr i8, ptr %tables, i64 %offset
  call void %kernel(ptr %table)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
"""Calls a kernel n times, each time with the next of `count` tables of `step` bytes."""


class RunWorker:
    """Holds the arrays of the current task and answers what is asked about kernels."""

    def __init__(self) -> None:
        self.held: dict[str, Array] = {}
        self.pool = process_pool(FileCache(process_config().cache))
        self.support = Library([emit_object(_REPEAT_IR, *host_cpu())])
        self.repeat = self.support.function("whet_repeat", *[ctypes.c_void_p] * 2,
                                            *[ctypes.c_int64] * 4)  # fmt: skip
        self.rotation = np.zeros(0, np.uint8)
        """Room for copies of constants, kept from job to job: touching new pages is slow."""

    def handle(self, message: dict[str, Any], arrays: Sequence[Array], answer: Answer) -> None:
        match message["do"]:
            case "hold":
                self.held[message["key"]] = arrays[0]
            case "forget":
                self.held.clear()
            case "measure" | "compare":
                answer(self.outcome(message, arrays, answer))

    def outcome(
        self, message: dict[str, Any], arrays: Sequence[Array], answer: Answer
    ) -> dict[str, Any]:
        """The final answer to a job; whatever happens to a kernel is an outcome."""
        beat = Beat(answer)

        def samples() -> list[list[float]]:
            kernels = [
                self.load(job_from_message(job), data.tobytes(), beat)
                for job, data in zip(message["jobs"], arrays, strict=True)
            ]
            for kernel in kernels:
                self.check(kernel, beat, message["limit"])
            clocks = self.clocks(kernels)
            alone = all(kernel.job.threads == 1 for kernel in kernels)
            warm = WARM_SECONDS if alone else WAKING_SECONDS
            if message["do"] == "measure":
                return [take_samples(clocks[0], beat, message["best"], warm)]
            a, b = clocks
            return list(take_turns(a, b, beat, message["seconds"], warm))

        return ending(samples)

    def load(self, job: KernelJob, data: bytes, beat: Beat) -> _Kernel:
        beat.now()
        return _Kernel(job, Library([data], self.pool.symbols))

    def check(self, kernel: _Kernel, beat: Beat, limit: float) -> None:
        """Runs the kernel with its memory right before, then right behind forbidden pages."""
        self.use_threads(kernel)
        for at_end in (True, False):
            blocks = []
            for p in kernel.job.parameters:
                block = GuardedBytes(p.nbytes, at_end=at_end)
                fill(p, block.bytes, self.held[p.array] if p.kind in _GIVEN else None)
                if p.kind in _GIVEN:
                    block.freeze()
                blocks.append(block)
            table = kernel.table([block.bytes for block in blocks])
            beat.now()
            start = time.perf_counter()
            kernel.call(table.ctypes.data)
            require_in_time(time.perf_counter() - start, limit)
            beat.now()
            for p, block in zip(kernel.job.parameters, blocks):
                if p.kind == "output":
                    self.compare(p, block.bytes, exact=kernel.job.exact)

    def compare(self, p: Parameter, memory: Array, *, exact: bool) -> None:
        problem = difference(view(p, memory), self.held[p.array], exact=exact)
        if problem is None and strayed(p, memory):
            problem = "it writes beside its output"
        if problem is not None:
            raise WrongAnswer(problem)

    def use_threads(self, kernel: _Kernel) -> None:
        if self.pool.chosen != kernel.job.threads:
            self.pool.set_threads(kernel.job.threads)

    def clocks(self, kernels: Sequence[_Kernel]) -> list[Clock]:
        """A clock for each kernel; all share what room there is for copies of constants."""
        room = max(k.job.cache_bytes for k in kernels) * 5 // 4
        needed = [max(room, k.constant_bytes) + k.constant_bytes for k in kernels]
        if len(self.rotation) < sum(needed):
            self.rotation = _touched(sum(needed))
        made, start = [], 0
        for kernel, nbytes in zip(kernels, needed):
            made.append(self.clock(kernel, self.rotation[start : start + nbytes]))
            start += nbytes
        return made

    def clock(self, kernel: _Kernel, room: Array) -> Clock:
        """Times the kernel; every call reads its constants from other copies than the last.

        In a model, a kernel finds its inputs in the cache, because they have just been
        computed, but its weights were last used one run of the whole model ago.
        """
        memory = {n: _filled(p, self.held) for n, p in enumerate(kernel.job.parameters)
                  if p.kind != "constant"}  # fmt: skip
        constants = [(n, p) for n, p in enumerate(kernel.job.parameters) if p.kind == "constant"]
        size = kernel.constant_bytes
        copies = min(MOST_COPIES, len(room) // size) if constants else 1
        start = 0
        for n, p in constants:
            memory[n] = room[start : start + p.nbytes]
            fill(p, memory[n], self.held[p.array])
            start += round_up(p.nbytes)
        first = kernel.table([memory[n] for n in range(len(kernel.job.parameters))])
        if constants:
            room[: copies * size].reshape(copies, size)[1:] = room[:size]
        # The tables of all copies: constants lie one copy further each time.
        moves = np.array([kernel.job.parameters[n].kind == "constant" for n in kernel.job.table])
        further = np.arange(copies, dtype=np.uint64)[:, None] * np.uint64(size)
        joined = np.ascontiguousarray(first + further * moves.astype(np.uint64))
        step, position = joined.nbytes // copies, 0

        def clock(calls: int) -> float:
            nonlocal position
            self.use_threads(kernel)
            start = time.perf_counter()
            self.repeat(kernel.address, joined.ctypes.data, copies, step, position, calls)
            seconds = time.perf_counter() - start
            position = (position + calls) % copies
            assert memory  # what the tables point to lives as long as the clock
            return seconds

        return clock


_GIVEN = ("input", "constant")


class _Kernel:
    """Loaded code with its parameters."""

    def __init__(self, job: KernelJob, library: Library) -> None:
        self.job, self.library = job, library
        self.address = library.address(job.symbol)
        self.call = library.function(job.symbol, ctypes.c_void_p)
        self.constant_bytes = sum(
            round_up(p.nbytes) for p in job.parameters if p.kind == "constant"
        )

    def table(self, memory: Sequence[Array]) -> Array:
        """The addresses of the arguments, given the bytes behind every parameter."""
        addresses = [base_address(p, m) for p, m in zip(self.job.parameters, memory, strict=True)]
        # Base addresses may lie before the memory itself, at views into something larger.
        return np.array([addresses[n] % (1 << 64) for n in self.job.table], np.uint64)


def _touched(nbytes: int) -> Array:
    """Aligned bytes whose pages exist, so that no fault is timed."""
    return aligned(np.ones(nbytes + ALIGNMENT, np.uint8), nbytes)


def _filled(p: Parameter, held: dict[str, Array]) -> Array:
    """Memory for timing, as aligned as in a model: values where they are given, else zeros."""
    memory = _touched(p.lead + p.nbytes)[p.lead :]
    fill(p, memory, held[p.array] if p.kind in _GIVEN else None)
    return memory


def main() -> None:
    restrict(memory_bytes=physical_memory())
    serve(RunWorker().handle)
