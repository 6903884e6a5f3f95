"""The steps that run a graph: native segments, and operators that run on their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.build.backend import Segment
from whet.graph.graph import Node, Value
from whet.ops.base import Op
from whet.runtime.executable import OnDevice


@dataclass(frozen=True, eq=False)
class NativeStep:
    """A segment between values of the graph."""

    segment: Segment
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def device(self) -> OnDevice | None:
        """The segment if it computes on a device with memory of its own."""
        return self.segment if isinstance(self.segment, OnDevice) else None


@dataclass(frozen=True, eq=False)
class LoneStep:
    """A node that runs on its own, in this process."""

    op: Op
    node: Node

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.node.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.node.results


Step = NativeStep | LoneStep


def read_on_device(steps: Sequence[Step]) -> set[Value]:
    """The values that segments on a device read."""
    return {
        v for s in steps if isinstance(s, NativeStep) and s.device is not None for v in s.inputs
    }
