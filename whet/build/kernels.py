"""From steps of a plan to machine code: schedules, text IR, objects, and the cache of objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.build.plan import LoopStep, Step
from whet.codegen.llvm.compile import ObjectJob, llvm_version
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.workers import compile_objects
from whet.core.caching import FileCache
from whet.core.digest import digest_text
from whet.core.target import Target
from whet.ir.program import Program
from whet.schedule.kernel import Kernel
from whet.tasks.task import Task

Schedule = Callable[[Task, str], Kernel]
"""Decides how a task is computed, and gives the kernel under the given name."""


@dataclass(frozen=True, eq=False)
class NativeKernel:
    """A kernel with its text IR; `symbol` is its name in machine code."""

    kernel: Kernel
    symbol: str
    ir: str


class KernelMaker:
    """Makes kernels of steps, equal ones once."""

    def __init__(self, target: Target, schedule: Schedule) -> None:
        self.target, self.schedule = target, schedule
        self.made: dict[str, NativeKernel] = {}

    def make(self, step: Step | LoopStep) -> NativeKernel:
        """The kernel of a step; NoCodeError if there is none."""
        if step.key not in self.made:
            symbol = f"k{step.key[:24]}"
            if isinstance(step, LoopStep):
                program = replace(step.program, name=symbol)
                kernel = Kernel(program, (), ())
            else:
                kernel = self.schedule(step.task, symbol)
            self.made[step.key] = NativeKernel(kernel, symbol, program_ir(kernel.program))
        return self.made[step.key]


def program_ir(program: Program) -> str:
    module = Module()
    emit_program(program, module)
    return module.text()


def compile_all(irs: Sequence[str], target: Target, cache: FileCache) -> list[bytes]:
    """The objects of text IR, from the cache where it has them."""
    features = ",".join(f"+{f}" for f in target.features)
    jobs = [ObjectJob(ir, target.triple, target.cpu, features) for ir in irs]
    keys = [digest_text(j.ir, j.triple, j.cpu, j.features, llvm_version()) for j in jobs]
    found = {key: cache.get("object", key) for key in dict.fromkeys(keys)}
    missing = {key: job for key, job in zip(keys, jobs) if found[key] is None}
    cores = len(os.sched_getaffinity(0))
    for key, made in zip(missing, compile_objects(list(missing.values()), cores)):
        cache.put("object", key, made)
        found[key] = made
    return [_present(found, key) for key in keys]


def _present(found: Mapping[str, bytes | None], key: str) -> bytes:
    data = found[key]
    assert data is not None
    return data
