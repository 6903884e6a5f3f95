"""Running a graph that has been built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from whet.build.backend import Segment
from whet.build.report import BuildReport
from whet.core.types import Array
from whet.graph.graph import Constant, Graph, Node, Value
from whet.ops.base import Op
from whet.runtime.arrays import is_ready
from whet.runtime.executable import Adopt, OnDevice, own_results


@dataclass(frozen=True, eq=False)
class NativeStep:
    """A segment between values of the graph."""

    segment: Segment
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class LoneStep:
    """A node that runs on its own."""

    op: Op
    node: Node


class NativeExecutable:
    """A graph as native code; see `whet.runtime.executable.Executable`."""

    engine: ClassVar[str] = "native"

    def __init__(
        self, graph: Graph, steps: tuple[NativeStep | LoneStep, ...], reasons: Mapping[Node, str]
    ) -> None:
        self.segments = tuple(s.segment for s in steps if isinstance(s, NativeStep))
        self.report = _report(graph, self.segments, reasons)
        # The graph is not kept: its constants live packed in the images.
        self._single = self.segments[0] if len(steps) == 1 and self.segments else None
        self._run = self._single or _Sequence(graph, steps)
        self.adopt = _adopting(self.segments, alone=self._single is not None)

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        if out is None:
            return self._run(inputs)
        if self._single and (self.adopt or _are_separate(out, inputs)):
            return self._single(inputs, out)  # a device reads and writes copies of such arrays
        for target, result in zip(out, self(inputs), strict=True):
            np.copyto(target, result, casting="no")
        return tuple(out)

    def describe(self) -> list[str]:
        return self.report.lines()


class _Sequence:
    """The steps of a graph that is not one native segment.

    Values are numbered here: a value of the graph holds all that it is computed from, and so
    all weights, of which native code has its own.
    """

    def __init__(self, graph: Graph, steps: Sequence[NativeStep | LoneStep]) -> None:
        numbers: dict[Value, int] = {}
        self.constants: dict[int, Array] = {}

        def number(v: Value) -> int:
            found = numbers.setdefault(v, len(numbers))
            if isinstance(v, Constant):
                self.constants[found] = v.array
            return found

        def numbered(step: NativeStep | LoneStep) -> _Turn:
            run: Callable[[tuple[Array, ...]], Sequence[Array]]
            if isinstance(step, NativeStep):
                run, inputs, outputs = step.segment, step.inputs, step.outputs
            else:
                run, inputs, outputs = step.op.run_reference, step.node.inputs, step.node.results
            return _Turn(run, tuple(map(number, inputs)), tuple(map(number, outputs)))

        self.inputs = tuple(map(number, graph.inputs))
        self.turns = tuple(map(numbered, steps))
        self.outputs = tuple(map(number, graph.outputs))

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        env = self.constants | dict(zip(self.inputs, inputs, strict=True))
        for turn in self.turns:
            env.update(zip(turn.outputs, turn.run(tuple(env[n] for n in turn.inputs))))
        return own_results([env[n] for n in self.outputs], inputs)


@dataclass(frozen=True, eq=False)
class _Turn:
    """A step between numbered values."""

    run: Callable[[tuple[Array, ...]], Sequence[Array]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def _adopting(segments: Sequence[Segment], *, alone: bool) -> Adopt | None:
    """Takes arrays on the device of the segments; where other steps come between, as copies."""
    found = next((s for s in segments if isinstance(s, OnDevice)), None)
    if found is None or alone:
        return None if found is None else found.adopt
    adopt = found.adopt

    def copied(value: Any, name: str) -> Array | None:
        array = adopt(value, name)
        return None if array is None else np.asarray(array)

    return copied


def _report(graph: Graph, segments: Sequence[Segment], reasons: Mapping[Node, str]) -> BuildReport:
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
