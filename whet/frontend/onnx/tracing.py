"""The values that a value is computed from."""

from __future__ import annotations

from collections.abc import Sequence

from whet.graph.graph import Input, Result, Value


def inputs_behind(value: Value) -> frozenset[Input]:
    """The inputs that a value depends on."""
    found: set[Input] = set()
    seen: set[Value] = set()
    waiting = [value]
    while waiting:
        v = waiting.pop()
        if v in seen:
            continue
        seen.add(v)
        if isinstance(v, Input):
            found.add(v)
        elif isinstance(v, Result):
            waiting.extend(v.node.inputs)
    return frozenset(found)


def depends_on(value: Value, inputs: Sequence[Input]) -> bool:
    """Whether a value is computed from one of the inputs."""
    return not inputs_behind(value).isdisjoint(inputs)
