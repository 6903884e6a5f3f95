"""From steps of a plan to kernels: a schedule for each, and source text of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from whet.codegen.generator import Generator, Source
from whet.ir.program import Buffer
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.tasks.steps import LoopStep, Step
from whet.tasks.task import Task

Schedule = Callable[[Task, str], Kernel]
"""Decides how a task is computed, and gives the kernel under the given name."""


@dataclass(frozen=True, eq=False)
class NativeKernel:
    """A kernel with its source; `symbol` is its name in the code."""

    kernel: Kernel
    symbol: str
    source: Source


class KernelMaker:
    """Makes kernels of steps, equal ones once."""

    def __init__(
        self,
        generator: Generator,
        schedule: Schedule,
        numerics: Numeric = "real",
        *,
        checked: bool = False,
    ) -> None:
        self.generator, self.schedule, self.checked = generator, schedule, checked
        self.guarded = numerics == "guarded"
        self.made: dict[str, NativeKernel] = {}

    def make(self, step: Step | LoopStep) -> NativeKernel:
        """The kernel of a step; NoCodeError if there is none."""
        if step.key not in self.made:
            symbol = f"k{step.key[:24]}"
            if isinstance(step, LoopStep):
                kernel = Kernel(replace(step.program, name=symbol), (), ())
            else:
                kernel = self.schedule(replace(step.task, guarded=self.guarded), symbol)
            limits = _limits(step, kernel) if self.checked else None
            source = self.generator.source(kernel.program, limits)
            self.made[step.key] = NativeKernel(kernel, symbol, source)
        return self.made[step.key]


def _limits(step: Step | LoopStep, kernel: Kernel) -> dict[Buffer, int]:
    """The elements in memory behind parameters that the kernel sees as one long row."""
    if isinstance(step, LoopStep):
        return {}
    tensors = (*kernel.arguments, *kernel.results)
    parameters = (*kernel.program.inputs, *kernel.program.outputs)
    return {
        buffer: step.storages[tensor].size
        for buffer, tensor in zip(parameters, tensors, strict=True)
        if tensor in step.storages and len(buffer.shape) == 1 and buffer.strides is None
    }
