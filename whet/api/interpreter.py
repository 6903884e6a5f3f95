"""The engine that is always there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from whet.api.engine import tuned_target
from whet.api.programs import Note
from whet.core.types import Array
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ops.base import Numeric
from whet.runtime.executable import Executable, own_results
from whet.runtime.schedules import StoredSchedule

if TYPE_CHECKING:
    from whet.tune.report import Watch


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Runs graphs node by node in NumPy: right, and slow.

    The number of threads is NumPy's own affair (its BLAS reads it from the environment).
    """

    reason: str = ""
    name: ClassVar[str] = "interpreter"
    keeps_graph: ClassVar[bool] = True
    guards: ClassVar[bool] = False
    target: ClassVar[None] = None
    can_tune: ClassVar[bool] = False

    def written_out(self, graph: Graph, numerics: Numeric) -> Graph:
        return graph

    def rewrite(self, graph: Graph, threads: int, numerics: Numeric) -> Graph:
        return graph

    def prepare(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric = "real",
        stored: Sequence[StoredSchedule] = (),
        note: Note | None = None,
    ) -> Executable:
        return _Interpreted(graph, self.reason)

    def schedules(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric,
        stored: Sequence[StoredSchedule] = (),
        note: Note | None = None,
    ) -> tuple[StoredSchedule, ...]:
        return tuple(stored)

    def tune(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric,
        seconds: float,
        watch: Watch | None = None,
    ) -> None:
        tuned_target(self)


@dataclass(frozen=True, slots=True)
class _Interpreted:
    graph: Graph
    reason: str
    engine: ClassVar[str] = Interpreter.name
    adopt: ClassVar[None] = None

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        results = interpret(self.graph, inputs, round_halves=False)
        if out is None:
            return own_results(results, inputs)
        for target, result in zip(out, results, strict=True):
            np.copyto(target, result, casting="no")
        return tuple(out)

    def describe(self) -> list[str]:
        return ["not native: all operators run in the interpreter", *self.reason.splitlines()]
