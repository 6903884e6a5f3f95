"""Running a graph that has been built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from whet.build.report import BuildReport
from whet.build.sequence import StepSequence
from whet.build.steps import NativeStep, Step
from whet.build.transfers import host_lines
from whet.core.types import Array
from whet.graph.graph import Graph, Node
from whet.runtime.arrays import is_ready
from whet.runtime.executable import Adopt, Adopted, OnDevice


class NativeExecutable:
    """A graph as native code; see `whet.runtime.executable.Executable`."""

    engine: ClassVar[str] = "native"

    def __init__(self, graph: Graph, steps: tuple[Step, ...], reasons: Mapping[Node, str]) -> None:
        self.segments = tuple(s.segment for s in steps if isinstance(s, NativeStep))
        self.report = _report(graph, steps, reasons)
        # The graph is not kept: its constants live packed in the images.
        self._single = self.segments[0] if len(steps) == 1 and self.segments else None
        # Methods, not objects: looking up how to call an object takes a tenth of a microsecond.
        self._run = (self._single or StepSequence(graph, steps)).__call__
        device = next((s for s in self.segments if isinstance(s, OnDevice)), None)
        self.adopt: Adopt | None = None if device is None else device.adopt

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        if out is None:
            return self._run(inputs)
        if self._single and (self.adopt or _are_separate(out, inputs)):
            return self._single(inputs, out)  # a device reads and writes copies of such arrays
        for target, result in zip(out, self(inputs), strict=True):
            if isinstance(target, Adopted):
                target.assign(result)
            else:
                np.copyto(target, result, casting="no")
        return tuple(out)

    def describe(self) -> list[str]:
        return self.report.lines()


def _report(graph: Graph, steps: Sequence[Step], reasons: Mapping[Node, str]) -> BuildReport:
    segments = [s.segment for s in steps if isinstance(s, NativeStep)]
    calls = [symbol for s in segments for symbol in s.image.symbols]
    return BuildReport(
        segments=len(segments),
        kernels=len(set(calls)),
        calls=len(calls),
        arena_bytes=sum(s.image.arena_bytes for s in segments),
        constant_bytes=sum(s.image.constant_bytes for s in segments),
        reference=tuple(
            f"{graph.names.get(node, node.op.name)} ({node.op.name}): {reason}"
            for node, reason in reasons.items()
        ),
        host=host_lines(graph, steps),
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
