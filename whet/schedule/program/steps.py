"""Traces: how a program came about, as structural steps with named holes and their integers.

    Trace(
        (
            TransformStep("split", loop="i", factor=Hole("i.0"), tail="peel"),
            TransformStep("parallel", loop="io"),
        ),
        {"i.0": 8},
    )

Steps are what changes structure, holes are numbers: a population shares the steps and differs in
the integers only.  A step is a primitive applied to the naive program, or a whole sketch, whose
holes are the fields of its tiling.  A trace is JSON, and replays to the same program.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from whet.core.errors import ScheduleError, WhetError, check, fail
from whet.ir.program import Buffer, Program
from whet.ir.tensor import Tensor
from whet.schedule.program.access import bordered_buffer
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.primitives import PRIMITIVES, naive_program, rewrite_layout
from whet.tasks.task import Task

VERSION = 1


@dataclass(frozen=True)
class Hole:
    """An integer that is chosen apart from the structure."""

    name: str


Argument = Union[str, int, None, Hole, "tuple[Argument, ...]"]


@dataclass(frozen=True, init=False)
class TransformStep:
    """One structural decision: a primitive or a sketch by name, with its arguments."""

    kind: str
    arguments: tuple[tuple[str, Argument], ...]

    def __init__(self, kind: str, **arguments: Argument) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "arguments", tuple(arguments.items()))

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{n}={_show(a)}' for n, a in self.arguments)})"


@dataclass(frozen=True)
class Trace:
    """Steps, and an integer for every hole in them."""

    steps: tuple[TransformStep, ...]
    holes: Mapping[str, int]

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} = {value}" for name, value in self.holes.items())
        return "\n".join([*map(str, self.steps), *([f"where {numbers}"] if numbers else [])])

    def with_holes(self, holes: Mapping[str, int]) -> Trace:
        """The same structure with other integers."""
        return Trace(self.steps, {**self.holes, **holes})

    def to_json(self) -> str:
        steps = [
            {"kind": s.kind, "with": {name: _encode(a) for name, a in s.arguments}}
            for s in self.steps
        ]
        return json.dumps({"version": VERSION, "steps": steps, "holes": dict(self.holes)})

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace that `to_json` wrote; anything else is an error (WH2120)."""
        try:
            data = json.loads(text)
            version = data["version"]
            steps = tuple(
                TransformStep(str(s["kind"]), **{str(n): _decode(a) for n, a in s["with"].items()})
                for s in data["steps"]
            )
            holes = {str(name): _integer(value) for name, value in data["holes"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fail("WH2120", f"this is not a trace: {error}", kind=ScheduleError)
        check(version == VERSION, "WH2120", f"the trace has version {version}, not {VERSION}",
              kind=ScheduleError)  # fmt: skip
        return Trace(steps, holes)


def _show(a: Argument) -> str:
    if isinstance(a, Hole):
        return f"?{a.name}"
    return f"({', '.join(map(_show, a))})" if isinstance(a, tuple) else str(a)


def _encode(a: Argument) -> Any:
    if isinstance(a, Hole):
        return {"hole": a.name}
    return [_encode(x) for x in a] if isinstance(a, tuple) else a


def _decode(a: Any) -> Argument:
    match a:
        case {"hole": str(name)}:
            return Hole(name)
        case list():
            return tuple(map(_decode, a))
        case str() | None:
            return a
    return _integer(a)


def _integer(a: Any) -> int:
    if type(a) is not int:
        raise ValueError(f"{a!r} is not an integer")
    return a


# -------------------------------------------------------------------------------------- replay
def replay_steps(trace: Trace, task: Task, name: str = "kernel") -> Kernel:
    """The kernel that primitives make of the task's naive program."""
    program = naive_program(task, name)
    packed: dict[Buffer, Tensor] = {}
    for number, step in enumerate(trace.steps):
        try:
            program = apply_step(program, step, trace.holes, task, packed)
        except WhetError as error:
            where = f"in step {number} of the trace: {step}"
            raise ScheduleError(
                error.code, error.message, details=(*error.details, where), hint=error.hint
            ) from error
    behind: dict[Buffer, Tensor] = {task.buffers[t]: t for t in task.inputs} | packed
    behind |= {bordered_buffer(task.buffers[t], task.borders[t]): t
               for t in task.inputs if t in task.borders}  # fmt: skip
    return Kernel(program, tuple(behind[b] for b in program.inputs), task.outputs)


def filled(step: TransformStep, holes: Mapping[str, int]) -> dict[str, Any]:
    """The arguments of a step with integers for its holes."""
    return {name: _fill(a, holes) for name, a in step.arguments}


def _fill(a: Argument, holes: Mapping[str, int]) -> Any:
    if isinstance(a, Hole):
        check(a.name in holes, "WH2120", f"the trace has no number for its hole '{a.name}'",
              kind=ScheduleError)  # fmt: skip
        return holes[a.name]
    return tuple(_fill(x, holes) for x in a) if isinstance(a, tuple) else a


def apply_step(
    program: Program,
    step: TransformStep,
    holes: Mapping[str, int],
    task: Task,
    packed: dict[Buffer, Tensor],
) -> Program:
    """The program after one primitive; layouts of constants note what is behind the new input."""
    kind, arguments = step.kind, filled(step, holes)
    if kind == "rewrite_layout":
        source = next((t for t in task.constants if t.name == arguments.get("buffer")), None)
        if source is None:
            fail("WH2105", f"'{arguments.get('buffer')}' is not a constant", kind=ScheduleError)
        _check_arguments(rewrite_layout, kind, {**arguments, "source": source})
        program, buffer, expression = rewrite_layout(program, source=source, **arguments)
        packed[buffer] = expression
        return program
    check(kind in PRIMITIVES, "WH2121", f"there is no schedule step '{kind}'",
          hint=f"known are {', '.join(PRIMITIVES)}", kind=ScheduleError)  # fmt: skip
    _check_arguments(PRIMITIVES[kind], kind, arguments)
    return PRIMITIVES[kind](program, **arguments)


def _check_arguments(function: Any, kind: str, arguments: Mapping[str, Any]) -> None:
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        fail("WH2120", f"step '{kind}': {error}", kind=ScheduleError)
