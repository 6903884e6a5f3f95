"""The process that owns the GPU: checks the results of kernels first, then takes the time.

It may hang at any kernel, so it says before each that it is alive; and a kernel that accesses
memory of others ends it, because then the GPU refuses everything else that the process asks for.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from typing import Any

from whet.codegen.cuda.driver import Driver
from whet.core.errors import WhetError
from whet.core.outcomes import Outcome
from whet.core.types import Array
from whet.measure.cuda.gpu_bench import GpuBench, LoadedKernel, TooSlow, WrongAnswer
from whet.measure.cuda.jobs import job_from_message
from whet.measure.serving import Answer, serve
from whet.measure.statistics import BadClock, Clock, take_samples, take_turns

BEAT_SECONDS = 0.05


class RunWorker:
    """Holds the arrays of the current task and answers what is asked about kernels."""

    def __init__(self, driver: Driver) -> None:
        self.bench = GpuBench(driver)
        self.held: dict[str, Array] = {}

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
        beat = _Beat(answer)
        kernels: list[LoadedKernel] = []
        try:
            for job, data in zip(message["jobs"], arrays, strict=True):
                kernels.append(self.bench.load(job_from_message(job), data.tobytes()))
                self.bench.check(kernels[-1], self.held, beat.now, message["limit"])
            samples = self.samples(message, kernels, beat)
        except TooSlow as slow:
            return {"outcome": Outcome.RUN_TIMEOUT, "message": str(slow)}
        except WrongAnswer as wrong:
            return {"outcome": Outcome.WRONG_ANSWER, "message": str(wrong)}
        except (BadClock, WhetError, MemoryError) as error:
            self.bench.settle()  # ends the process if the GPU does not recover
            text = f"{type(error).__name__}: {error}"
            return {"outcome": Outcome.RUN_ERROR, "message": text.splitlines()[0]}
        finally:
            self.bench.drop(kernels)
        return {"outcome": Outcome.OK, "message": "", "samples": samples}

    def samples(
        self, message: dict[str, Any], kernels: Sequence[LoadedKernel], beat: _Beat
    ) -> list[list[float]]:
        """Seconds per call of every kernel."""
        clocks: list[Clock] = []
        counts: list[int] = []
        for kernel in kernels:
            clock, count = self.bench.clock(kernel)
            clocks.append(clock)
            counts.append(count)
        if message["do"] == "measure":
            best = message["best"]
            whole = None if best is None else best * counts[0]
            taken = [take_samples(clocks[0], beat, whole)]
        else:
            taken = list(take_turns(clocks[0], clocks[1], beat, message["seconds"]))
        return [[s / count for s in samples] for samples, count in zip(taken, counts)]


class _Beat:
    """Says that the worker is alive: at once, or if it has not said so for a while."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.last = answer, 0.0

    def now(self) -> None:
        self.last = time.monotonic()
        self.answer({"beat": True})

    def __call__(self) -> None:
        if time.monotonic() - self.last > BEAT_SECONDS:
            self.now()


def main() -> None:
    from whet.codegen.cuda.bindings import cuda_driver

    # Memory is not limited: addresses of all GPUs and of the process are reserved at once.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(RunWorker(cuda_driver()).handle)
