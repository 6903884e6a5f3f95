"""Variants of one graph, compiled side by side and called in turns.

    graphs  ->  one executable each  ->  calls in an order that rotates  ->  medians and ratios,
                                                                            with 95 % intervals

Calls that stand side by side share their noise, so ratios are taken round by round.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.tuning import native_engine
from harness.turns import Settings, machine_busy_seconds
from whet.build.backend import KernelPrice, backend_of
from whet.build.executable import NativeExecutable
from whet.build.kernels import KernelMaker
from whet.build.native import NO_CACHE, build
from whet.build.steps import NativeStep
from whet.core.types import Array
from whet.graph.graph import Graph
from whet.graph.passes.expand_composites import expand_composites
from whet.runtime.executable import Executable
from whet.tasks.layout import ChooseLayouts
from whet.tasks.pieces import NativePiece
from whet.tasks.plan import plan_graph
from whet.tasks.price import no_evidence

DRAWN = 500
"""Samples of the bootstrap."""
FEWEST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the interval that has it with a probability of 95 %."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> Interval:
        return Interval(self.low * factor, self.middle * factor, self.high * factor)


@dataclass(frozen=True, eq=False)
class Turns:
    """Seconds of calls of several variants, round by round."""

    seconds: tuple[Array, ...]
    foreign: float
    """Processor time that others used meanwhile, as a share of one core."""

    @property
    def disturbed(self) -> bool:
        return self.foreign > Settings().foreign

    def median(self, n: int) -> Interval:
        return bootstrapped(self.seconds[n])

    def ratio(self, before: int, after: int) -> Interval:
        """The time of one variant by that of another."""
        return bootstrapped(self.seconds[before] / self.seconds[after])


def price_of(graph: Graph, threads: int) -> KernelPrice:
    target = native_engine().target
    return backend_of(target).price(target, threads, "real", no_evidence, graph.constant_bytes)


def built(graph: Graph, threads: int) -> Executable:
    """The graph with default kernels, as it is."""
    engine = native_engine()
    return build(graph, engine.target, threads, engine.cache)


def built_with(graph: Graph, threads: int, layouts: ChooseLayouts) -> Executable:
    """The same with other layouts, which the cache knows nothing about."""
    target = native_engine().target
    backend, graph = backend_of(target), expand_composites(graph)
    price = price_of(graph, threads)
    plan = plan_graph(graph, price, backend.holds, layouts)
    (piece,) = plan.pieces
    assert isinstance(piece, NativePiece), plan.reasons
    maker = KernelMaker(backend.generator(target), price.kernel)
    assembler = backend.assembler(target, threads, NO_CACHE)
    segment = assembler.assemble(plan.plans[piece], maker, NO_CACHE, "layouts")
    steps = (NativeStep(segment, piece.inputs, piece.outputs),)
    return NativeExecutable(graph, steps, plan.reasons)


def random_inputs(graph: Graph) -> list[Array]:
    """Random numbers; integers, which may be positions, are zero."""
    rng = np.random.default_rng(0)
    types = [v.tensor_type for v in graph.inputs]
    return [
        rng.standard_normal(t.shape).astype(t.dtype.numpy)
        if t.dtype.is_float
        else np.zeros(t.shape, t.dtype.numpy)
        for t in types
    ]


def largest_difference(left: Sequence[Array], right: Sequence[Array]) -> float:
    """Of all outputs, relative to the largest element."""
    return max(
        float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(a))), 1e-30))
        for a, b in zip(left, right, strict=True)
    )


def in_turns(runs: Sequence[Executable], inputs: list[Array], seconds: float) -> Turns:
    """Calls of all variants for about so long."""
    times: list[list[float]] = [[] for _ in runs]
    busy, own, start = machine_busy_seconds(), time.process_time(), time.perf_counter()
    rounds = 0
    while rounds < FEWEST_ROUNDS or time.perf_counter() < start + seconds:
        shift = rounds % len(runs)
        for n in (*range(shift, len(runs)), *range(shift)):
            before = time.perf_counter()
            runs[n](inputs)
            times[n].append(time.perf_counter() - before)
        rounds += 1
    elapsed = time.perf_counter() - start
    others = (machine_busy_seconds() - busy) - (time.process_time() - own)
    return Turns(tuple(map(np.asarray, times)), max(0.0, others / elapsed))


def bootstrapped(values: Array) -> Interval:
    """The median of the values and its interval, by resampling."""
    rng = np.random.default_rng(0)
    drawn = np.median(rng.choice(values, (DRAWN, len(values))), axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Interval(float(low), float(np.median(values)), float(high))
