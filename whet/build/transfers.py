"""Copies between a device and this process that operators outside of segments cause."""

from __future__ import annotations

from collections.abc import Sequence

from whet.build.steps import LoneStep, NativeStep, Step
from whet.graph.graph import Graph, Value
from whet.graph.rewrite import bodies


def host_lines(graph: Graph, steps: Sequence[Step]) -> tuple[str, ...]:
    """For every operator that runs on the host of a device: which one, and the bytes that it has
    copied in each call; nothing where no device is.

        h (non_zero): 96 bytes from the device and 0 bytes to it in each call

    A value is copied from the device once, for the first operator that reads it, and to the device
    for every segment that does.  Inputs of the model are not counted: they lie where the caller
    has them.
    """
    on_device = [s for s in steps if isinstance(s, NativeStep) and s.device is not None]
    if not on_device:
        return ()
    there = {v for s in on_device for v in s.outputs}
    reads = [v for s in on_device for v in s.inputs]
    lines = []
    for step in steps:
        if isinstance(step, LoneStep):
            fetched = there.intersection(step.inputs)
            there -= fetched
            sent = [v for v in reads if v in step.outputs]
            lines.append(_line(graph, step, _bytes(fetched), _bytes(sent)))
    return tuple(lines)


def _line(graph: Graph, step: LoneStep, fetched: int, sent: int) -> str:
    name = graph.names.get(step.node, step.op.name)
    line = (
        f"{name} ({step.op.name}): {fetched} bytes from the device and {sent} bytes to it in each "
        "call"
    )
    if bodies(step.node.op):
        line += ", and what its bodies read and make in each of their rounds"
    return line


def _bytes(values: Sequence[Value] | set[Value]) -> int:
    return sum(v.tensor_type.nbytes for v in values)
