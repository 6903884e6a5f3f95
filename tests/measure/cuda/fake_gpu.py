"""A GPU whose kernels are Python functions, and processes that take it for a real one.

`Planted` has kernels of `double_task` that multiply by a number of their own; what the GPU does
with a kernel depends on that number, which it finds in the source text: the compiler of these tests
changes nothing.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tests.build.cuda.recorded_driver import RecordedDriver
from whet.codegen.cuda.driver import Handle, Ready
from whet.codegen.cuda.launch import Launch
from whet.core.dtypes import i64
from whet.core.errors import WhetError
from whet.core.gpu import PRESETS, GpuTarget
from whet.core.types import Array
from whet.ir.expr import Var, cast, const
from whet.ir.program import Loop, Program, Store
from whet.measure.cuda.run_worker import RunWorker
from whet.measure.serving import serve
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import SKETCHES, add_sketch
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task

TARGET = PRESETS["cuda-sm_90a"]
SIZE = 100
"""Elements of the task's input and output."""

Run = Callable[[int, int], None]
"""Gets the addresses of input and output."""


def floats(address: int, count: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def times(factor: float, count: int = SIZE) -> Run:
    def run(x: int, y: int) -> None:
        floats(y, count)[:] = floats(x, count) * np.float32(factor)

    return run


def _writes_before(x: int, y: int) -> None:
    times(2)(x, y)
    floats(y - 4, 1)[0] = 1.0


def _writes_far_behind(x: int, y: int) -> None:
    times(2)(x, y)
    floats(y + 4 * SIZE + 200, 1)[0] = 1.0


def _writes_input(x: int, y: int) -> None:
    times(2)(x, y)
    floats(x, 1)[0] += 1.0


def _hangs(x: int, y: int) -> None:
    time.sleep(600.0)


def _dies(x: int, y: int) -> None:
    os._exit(3)


FAULTS: dict[str, Run | None] = {
    "right": times(2),
    "also right": times(2),
    "wrong": times(3),
    "slightly wrong": times(2.001),
    "unfinished": times(2, SIZE - 1),
    "writes before": _writes_before,
    "writes far behind": _writes_far_behind,
    "writes input": _writes_input,
    "hangs": _hangs,
    "dies": _dies,
    "fails for good": None,
    "is not launched": None,
    "is not compiled": None,
    "is not lowered": None,
}
NAMES = list(FAULTS)
FIRST = 1000
"""The factor of the first kernel in its text."""


class FakeDriver(RecordedDriver):
    """Runs what the source text asks for; kernels take microseconds by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = False
        self.clock = 0.0
        self.stamps: dict[Handle, float] = {}

    def load(self, cubin: bytes) -> Handle:
        super().load(cubin)
        return NAMES[int(re.findall(rb"\b(10\d\d)", cubin)[0]) - FIRST]

    def function(self, module: Handle, launch: Launch) -> Handle:
        return module

    def launch(self, kernel: Ready, stream: int) -> None:
        if kernel.function == "is not launched":
            raise WhetError("WH1010", "the driver of the GPU refused a call: NO_RESOURCES")
        super().launch(kernel, stream)

    def _run(self, kernel: Ready, addresses: Sequence[int]) -> None:
        run = FAULTS[kernel.function]
        self.failed = self.failed or run is None
        if run is not None:
            run(*addresses[:2])
        self.clock += 1e-3 * (1 + NAMES.index(kernel.function))

    def synchronize(self, stream: int) -> None:
        super().synchronize(stream)
        if self.failed:
            raise WhetError("WH1010", "the driver of the GPU refused a call: ILLEGAL_ADDRESS")

    def record(self, event: Handle, stream: int) -> None:
        super().record(event, stream)
        self.stamps[event] = self.clock

    def milliseconds(self, first: Handle, last: Handle) -> float:
        return self.stamps[last] - self.stamps[first]


@dataclass(frozen=True)
class Planted(Sketch[Task, GpuTarget]):
    """Kernels of `double_task`; the hole says which."""

    name: str = "planted_gpu"
    numeric: Numeric = "exact"
    machine: ClassVar[str] = GpuTarget.kind

    def fits(self, task: Task) -> Task | None:
        return task if len(task.inputs) == 1 else None

    def space(self, form: Task, target: GpuTarget, threads: int) -> Population:
        return {"fault": np.arange(len(NAMES))}

    def costs(self, form: Task, target: GpuTarget, threads: int, population: Population) -> Array:
        return np.full(len(population["fault"]), 1e12)

    def lower(self, form: Task, holes: Mapping[str, int], name: str) -> Kernel:
        if NAMES[holes["fault"]] == "is not lowered":
            raise ZeroDivisionError("no such tile")
        x, y = form.buffers[form.inputs[0]], form.buffers[form.outputs[0]]
        i = Var("i")
        number = cast(const(FIRST + holes["fault"], i64) + i, x.dtype)
        store = Store(y, (i,), x[i] * number)
        body = (Loop(i, const(SIZE, i.dtype), (store,), "parallel"),)
        return Kernel(Program(name, (x,), (y,), body), form.inputs, form.outputs)


def plant() -> None:
    if Planted.name not in SKETCHES:
        add_sketch(Planted())


def uproot() -> None:
    SKETCHES.added.pop(Planted.name, None)


def main() -> None:
    """The process that owns the GPU."""
    serve(RunWorker(FakeDriver()).handle)
