"""Native code against the interpreter, at the edge of readable memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.build.guard_pages import GuardedMemory
from tests.ops.test_properties import check_same
from tests.targets import HOST
from whet.build.native import NativeExecutable, build
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.types import Array
from whet.graph.graph import Graph, apply, make_input
from whet.graph.interpret import interpret
from whet.ops.base import Sample
from whet.schedule.prices import AnalyticPrice
from whet.tasks.segment_plan import plan_segment
from whet.tasks.steps import Plan

TARGET = HOST
NO_CACHE = FileCache(CacheConfig(enabled=False))


def sample_graph(sample: Sample) -> Graph:
    """The operator alone, on inputs."""
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(sample.types))
    outputs = apply(sample.op, *inputs)
    return Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))


def plan_of(graph: Graph, threads: int = 1) -> Plan:
    return plan_segment(graph, AnalyticPrice(TARGET, threads, "real"))


def native(graph: Graph, threads: int = 1) -> NativeExecutable:
    return build(graph, TARGET, threads, NO_CACHE)


def check_native(graph: Graph, arrays: tuple[Array, ...], what: str) -> NativeExecutable:
    """Builds the graph and compares its outputs with the interpreter's."""
    executable = native(graph)
    expected = interpret(graph, arrays)
    for results in guarded_results(executable, graph, arrays):
        for got, want in zip(results, expected, strict=True):
            check_same(got, np.asarray(want), what)
    return executable


def guarded_results(
    executable: NativeExecutable, graph: Graph, arrays: tuple[Array, ...]
) -> Iterator[list[Array]]:
    """The outputs on arrays flush against the end of readable memory, then its start."""
    for at_end in (True, False):
        memory = GuardedMemory(at_end=at_end)
        given = [memory.copy(a, v.tensor_type) for a, v in zip(arrays, graph.inputs)]
        out = [memory.empty(v.tensor_type) for v in graph.outputs]
        executable(given, out)
        yield out
