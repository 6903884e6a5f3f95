"""From steps of a plan to machine code: schedules, text IR, objects, and the cache of objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.codegen.llvm.compile import ObjectJob, llvm_version
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.workers import compile_objects
from whet.core.caching import FileCache
from whet.core.containers import usable_processors
from whet.core.cpu import CpuTarget
from whet.core.digest import digest_text
from whet.ir.program import Buffer
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.tasks.steps import LoopStep, Step
from whet.tasks.task import Task

Schedule = Callable[[Task, str], Kernel]
"""Decides how a task is computed, and gives the kernel under the given name."""


@dataclass(frozen=True, eq=False)
class NativeKernel:
    """A kernel with its text IR; `symbol` is its name in machine code."""

    kernel: Kernel
    symbol: str
    ir: str
    has_status: bool
    """Whether its table ends with the address of a status."""


class KernelMaker:
    """Makes kernels of steps, equal ones once."""

    def __init__(
        self,
        target: CpuTarget,
        schedule: Schedule,
        numerics: Numeric = "real",
        *,
        checked: bool = False,
    ) -> None:
        self.target, self.schedule, self.checked = target, schedule, checked
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
            module = Module(self.target)
            emit_program(kernel.program, module, _limits(step, kernel) if self.checked else None)
            self.made[step.key] = NativeKernel(kernel, symbol, module.text(), module.has_status)
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


def object_job(ir: str, target: CpuTarget) -> ObjectJob:
    return ObjectJob(ir, target.triple, target.cpu, ",".join(f"+{f}" for f in target.features))


def compile_all(irs: Sequence[str], target: CpuTarget, cache: FileCache) -> list[bytes]:
    """The objects of text IR, from the cache where it has them."""
    jobs = [object_job(ir, target) for ir in irs]
    keys = [digest_text(j.ir, j.triple, j.cpu, j.features, llvm_version()) for j in jobs]
    found = {key: cache.get("object", key) for key in dict.fromkeys(keys)}
    missing = {key: job for key, job in zip(keys, jobs) if found[key] is None}
    cores = usable_processors()
    for key, made in zip(missing, compile_objects(list(missing.values()), cores)):
        cache.put("object", key, made)
        found[key] = made
    return [_present(found, key) for key in keys]


def _present(found: Mapping[str, bytes | None], key: str) -> bytes:
    data = found[key]
    assert data is not None
    return data
