"""Running a graph that is not one native segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from whet.build.steps import LoneStep, Step, read_on_device
from whet.core.types import Array
from whet.graph.graph import Constant, Graph, Value
from whet.runtime.executable import Adopted, own_results

AnyArray = Array | Adopted


@dataclass(frozen=True, eq=False)
class _Turn:
    """A step between numbered values; one that is lone takes arrays of this process only."""

    run: Callable[[tuple[Any, ...]], Sequence[AnyArray]]
    lone: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class StepSequence:
    """The steps of a graph, one after the other.

    What a segment on a device makes for another one stays there, and lone operators get a copy.

        segment → v → segment           v stays on the device
        segment → v → lone operator     v is copied once
        segment → v → both              v stays, and is copied once

    Values are numbered here: a value of the graph holds all that it is computed from, and so
    all weights, of which native code has its own.
    """

    def __init__(self, graph: Graph, steps: Sequence[Step]) -> None:
        numbers: dict[Value, int] = {}
        self.constants: dict[int, Array] = {}
        stays = read_on_device(steps)

        def number(v: Value) -> int:
            found = numbers.setdefault(v, len(numbers))
            if isinstance(v, Constant):
                self.constants[found] = v.array
            return found

        def turn(step: Step) -> _Turn:
            run: Callable[[tuple[Any, ...]], Sequence[AnyArray]]
            if isinstance(step, LoneStep):
                run = step.op.run_reference
            elif step.device is None:
                run = step.segment
            else:
                run = partial(step.device.leaving, stays=[v in stays for v in step.outputs])
            places = tuple(map(number, step.inputs)), tuple(map(number, step.outputs))
            return _Turn(run, isinstance(step, LoneStep), *places)

        self.inputs = tuple(map(number, graph.inputs))
        self.turns = tuple(map(turn, steps))
        self.outputs = tuple(map(number, graph.outputs))

    def __call__(self, inputs: Sequence[AnyArray]) -> tuple[Array, ...]:
        made: dict[int, AnyArray] = {**self.constants, **dict(zip(self.inputs, inputs))}
        copies: dict[int, Array] = {}

        def here(number: int) -> Array:
            """A value as an array of this process."""
            value = made[number]
            if not isinstance(value, Adopted):
                return value
            if number not in copies:
                copies[number] = np.asarray(value)
            return copies[number]

        for turn in self.turns:
            get = here if turn.lone else made.__getitem__
            made.update(zip(turn.outputs, turn.run(tuple(get(n) for n in turn.inputs))))
        return own_results([here(n) for n in self.outputs], inputs)
