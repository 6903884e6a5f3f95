"""Engines: what turns a graph into something that runs.

The interpreter is the engine that is always there.  An engine that generates native code is
another class with the same two members and takes its place in `default_engine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from whet.core.types import Array
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.runtime.executable import Executable


class Engine(Protocol):
    """Prepares graphs for running."""

    @property
    def name(self) -> str:
        """What users see: `interpreter`, `native`."""

    def prepare(self, graph: Graph, threads: int) -> Executable:
        """The graph as a callable that uses at most `threads` threads."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Runs graphs node by node in NumPy: right, and slow.

    The number of threads is NumPy's own affair (its BLAS reads it from the environment).
    """

    name: ClassVar[str] = "interpreter"

    def prepare(self, graph: Graph, threads: int) -> Executable:
        return _Interpreted(graph)


@dataclass(frozen=True, slots=True)
class _Interpreted:
    graph: Graph

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        results = interpret(self.graph, inputs)
        if out is None:
            return _owned(results, inputs)
        for target, result in zip(out, results, strict=True):
            np.copyto(target, result, casting="no")
        return tuple(out)


def _owned(results: Sequence[Array], inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The results as contiguous arrays that nobody else holds.

    An output can be a constant of the graph, an input, a view of one, or another output.
    """
    taken = list(inputs)
    owned: list[Array] = []
    for result in results:
        array = np.asarray(result, order="C")
        if not array.flags.writeable or any(np.may_share_memory(array, t) for t in taken):
            array = array.copy()
        owned.append(array)
        taken.append(array)
    return tuple(owned)


def default_engine() -> Engine:
    """The best engine that this installation has."""
    return Interpreter()
