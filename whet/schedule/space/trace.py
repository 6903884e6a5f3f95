"""Traces and sketches: a candidate as a trace, and what a trace of either kind lowers to.

A trace is a list of primitives, or one sketch whose holes are the fields of its tiling.
"""

from __future__ import annotations

from collections.abc import Mapping

from whet.core.errors import ScheduleError, check
from whet.ir.program import Program
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.steps import (
    Argument,
    Hole,
    Trace,
    TransformStep,
    apply_step,
    filled,
    replay_steps,
)
from whet.schedule.space.registry import SKETCHES, find_sketch
from whet.schedule.space.sketch import Choice
from whet.tasks.task import Task

__all__ = [
    "Argument",
    "Hole",
    "Trace",
    "TransformStep",
    "apply_step",
    "filled",
    "replay",
    "replay_kernel",
    "trace_of",
]


def trace_of(choice: Choice) -> Trace:
    """A candidate of a sketch as a trace."""
    holes = {name: Hole(name) for name in choice.holes}
    return Trace((TransformStep(choice.sketch.name, **holes),), choice.holes)


def replay(trace: Trace, task: Task, name: str = "kernel") -> Program:
    """The program that the trace describes for the task."""
    return replay_kernel(trace, task, name).program


def replay_kernel(trace: Trace, task: Task, name: str = "kernel") -> Kernel:
    """The program together with what its parameters are bound to."""
    if len(trace.steps) == 1 and trace.steps[0].kind in SKETCHES:
        (step,) = trace.steps
        return _sketch_kernel(step.kind, filled(step, trace.holes), task, name)
    return replay_steps(trace, task, name)


def _sketch_kernel(kind: str, holes: Mapping[str, int], task: Task, name: str) -> Kernel:
    sketch = find_sketch(kind)
    form = sketch.fits(task)
    check(form is not None, "WH2120", f"sketch '{kind}' does not fit the task", kind=ScheduleError)
    return sketch.lower(form, holes, name)
