"""The process that owns the GPU: checks the results of kernels first, then takes the time.

It may hang at any kernel, so it says before each that it is alive; and a kernel that accesses
memory of others ends it, because then the GPU refuses everything else that the process asks for.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from whet.codegen.cuda.driver import Driver
from whet.core.outcomes import Outcome
from whet.core.types import Array
from whet.measure.cuda.gpu_bench import GpuBench, LoadedKernel
from whet.measure.cuda.jobs import job_from_message
from whet.measure.cuda.network_bench import NetworkBench
from whet.measure.cuda.network_jobs import network_from_message
from whet.measure.running import Beat, ending
from whet.measure.serving import Answer, serve
from whet.measure.statistics import (
    GRAPH_SAMPLE_SECONDS,
    Clock,
    network_turns,
    take_samples,
    take_turns,
)


class RunWorker:
    """Holds the arrays of the current task and answers what is asked about kernels."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.bench = driver, GpuBench(driver)
        self.held: dict[str, Array] = {}

    @cached_property
    def networks(self) -> NetworkBench:
        return NetworkBench(self.driver)

    def handle(self, message: dict[str, Any], arrays: Sequence[Array], answer: Answer) -> None:
        match message["do"]:
            case "hold":
                self.held[message["key"]] = arrays[0]
            case "forget":
                self.held.clear()
            case "measure" | "compare":
                answer(self.outcome(message, arrays, answer))
            case "compare_networks":
                answer(self.compare_networks(message, answer))

    def outcome(
        self, message: dict[str, Any], arrays: Sequence[Array], answer: Answer
    ) -> dict[str, Any]:
        """The final answer to a job of kernels; whatever happens to one is an outcome."""
        beat = Beat(answer)
        kernels: list[LoadedKernel] = []

        def samples() -> list[list[float]]:
            for job, data in zip(message["jobs"], arrays, strict=True):
                kernels.append(self.bench.load(job_from_message(job), data.tobytes()))
                self.bench.check(kernels[-1], self.held, beat.now, message["limit"])
            return self.samples(message, kernels, beat)

        try:
            # Settling ends the process if the GPU does not recover.
            return ending(samples, self.bench.settle)
        finally:
            self.bench.drop(kernels)

    def samples(
        self, message: dict[str, Any], kernels: Sequence[LoadedKernel], beat: Beat
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
            taken = [take_samples(clocks[0], beat, whole, sample=GRAPH_SAMPLE_SECONDS)]
        else:
            taken = list(take_turns(clocks[0], clocks[1], beat, message["seconds"]))
        return [[s / count for s in samples] for samples, count in zip(taken, counts)]

    def compare_networks(self, message: dict[str, Any], answer: Answer) -> dict[str, Any]:
        """The final answer to a job of two networks, whose kernels were checked before."""
        beat = Beat(answer)
        jobs = [network_from_message(job) for job in message["jobs"]]

        def samples() -> list[list[float]]:
            clocks: list[Clock] = []
            for job in jobs:
                beat.now()
                network = self.networks.load(job, self.held)
                self.networks.try_once(network, message["limit"])
                clocks.append(self.networks.clock(network))
            a, b = clocks
            return list(network_turns(a, b, beat, message["seconds"]))

        end = ending(samples, self.bench.settle)
        self.networks.keep(jobs if end["outcome"] is Outcome.OK else ())
        return end


def main() -> None:
    from whet.codegen.cuda.bindings import cuda_driver

    # Memory is not limited: addresses of all GPUs and of the process are reserved at once.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(RunWorker(cuda_driver()).handle)
