"""Running a graph that has been built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whet.build.report import BuildReport
from whet.build.segment import NativeSegment
from whet.core.types import Array
from whet.graph.graph import Constant, Graph, Node, Value
from whet.ops.base import Op
from whet.runtime.arrays import is_ready
from whet.runtime.executable import own_results


@dataclass(frozen=True, eq=False)
class NativeStep:
    """A segment between values of the graph."""

    segment: NativeSegment
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class LoneStep:
    """A node that runs on its own."""

    op: Op
    node: Node


class NativeExecutable:
    """A graph as native code; see `whet.runtime.executable.Executable`."""

    def __init__(
        self, graph: Graph, steps: tuple[NativeStep | LoneStep, ...], reasons: Mapping[Node, str]
    ) -> None:
        self.segments = tuple(s.segment for s in steps if isinstance(s, NativeStep))
        self.report = _report(graph, self.segments, reasons)
        self._single = self.segments[0] if len(steps) == 1 and self.segments else None
        # A graph that is one segment is not kept: its constants live packed in the image.
        self._graph = None if self._single else graph
        self._steps = () if self._single else steps

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        if out is None:
            return self._single(inputs) if self._single else self._run(inputs)
        if self._single and _are_separate(out, inputs):
            return self._single(inputs, out)
        for target, result in zip(out, self(inputs), strict=True):
            np.copyto(target, result, casting="no")
        return tuple(out)

    def describe(self) -> list[str]:
        return self.report.lines()

    def _run(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """All steps in order, for graphs that are not one native segment."""
        assert self._graph is not None
        env: dict[Value, Array] = dict(zip(self._graph.inputs, inputs, strict=True))

        def read(v: Value) -> Array:
            return v.array if isinstance(v, Constant) else env[v]

        for step in self._steps:
            if isinstance(step, NativeStep):
                env.update(zip(step.outputs, step.segment([read(v) for v in step.inputs])))
            else:
                results = step.op.run_reference(tuple(read(v) for v in step.node.inputs))
                env.update(zip(step.node.results, results))
        return own_results([read(v) for v in self._graph.outputs], inputs)


def _report(
    graph: Graph, segments: Sequence[NativeSegment], reasons: Mapping[Node, str]
) -> BuildReport:
    calls = [c for s in segments for c in s.image.calls]
    return BuildReport(
        segments=len(segments),
        kernels=len({c.symbol for c in calls}),
        calls=len(calls),
        arena_bytes=sum(s.image.arena_bytes for s in segments),
        constant_bytes=sum(s.image.constants.size for s in segments),
        reference=tuple(
            f"{graph.names.get(node, node.op.name)} ({node.op.name}): {reason}"
            for node, reason in reasons.items()
        ),
    )


def _are_separate(out: Sequence[Array], inputs: Sequence[Array]) -> bool:
    """True when results can be written where they belong while the inputs are being read."""
    for number, array in enumerate(out):
        if not is_ready(array):
            return False
        for other in (*inputs, *out[:number]):
            if np.may_share_memory(array, other):
                return False
    return True
