"""An ONNX graph as a list of steps, for translating it into another framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from whet.core.errors import fail
from whet.core.types import Array


@dataclass(frozen=True)
class Node:
    """One operator with its attributes and whatever of its inputs is constant."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    constants: Mapping[str, Array]

    def ints(self, index: int, attribute: str | None = None) -> list[int] | None:
        """The integers of a constant input, or else of an attribute; None if absent."""
        if index < len(self.inputs) and self.inputs[index]:
            return [int(i) for i in self.constants[self.inputs[index]].reshape(-1)]
        found = self.attributes.get(attribute) if attribute else None
        return None if found is None else list(found)

    def number(self, index: int) -> float | None:
        """The number in a constant input; None if absent."""
        if index < len(self.inputs) and self.inputs[index]:
            return float(self.constants[self.inputs[index]].item())
        return None

    def weight_rank(self) -> int:
        return self.constants[self.inputs[1]].ndim

    def pads(self, rank: int) -> tuple[list[int], list[int]]:
        pads = list(self.attributes.get("pads", [0] * 2 * rank))
        return pads[:rank], pads[rank:]


Function = Callable[..., Any]
Make = Callable[[Node], Function]


@dataclass(frozen=True)
class Step:
    """A function from values to values, and the values that nobody reads afterwards."""

    function: Function
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dead: tuple[str, ...]


@dataclass(frozen=True)
class Steps:
    """A graph: `constants` are what the steps read beside the inputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    steps: tuple[Step, ...]

    def run(self, values: dict[str, Any]) -> tuple[Any, ...]:
        """The outputs, given inputs and constants by name."""
        for step in self.steps:
            found = step.function(*[values[i] if i else None for i in step.inputs])
            if len(step.outputs) == 1:
                values[step.outputs[0]] = found
            else:
                values.update(zip(step.outputs, found))
            for name in step.dead:
                del values[name]
        return tuple(values[o] for o in self.outputs)


def read_steps(path: str, table: Mapping[str, Make]) -> Steps:
    """The model's steps, with the table saying what each operator is."""
    graph = onnx.load(path).graph
    constants = {t.name: np.array(numpy_helper.to_array(t)) for t in graph.initializer}
    nodes = []
    for proto in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        if proto.op_type == "Constant":
            constants[proto.output[0]] = np.array(numpy_helper.to_array(attributes["value"]))
        else:
            nodes.append(
                Node(proto.op_type, tuple(proto.input), tuple(proto.output), attributes, constants)
            )
    unknown = sorted({n.op for n in nodes} - set(table))
    if unknown:
        fail("WH3005", f"not translated: {', '.join(unknown)}")
    outputs = tuple(o.name for o in graph.output)
    kept = {*constants, *outputs}
    last = {name: k for k, n in enumerate(nodes) for name in (*n.inputs, *n.outputs) if name}
    dead: dict[int, list[str]] = {}
    for name, k in last.items():
        if name not in kept:
            dead.setdefault(k, []).append(name)
    steps = tuple(
        Step(table[n.op](n), n.inputs, n.outputs, tuple(dead.get(k, ())))
        for k, n in enumerate(nodes)
    )
    inputs = tuple(i.name for i in graph.input if i.name not in constants)
    return Steps(inputs, outputs, constants, steps)
