"""From a candidate to what can be built and run: its program, and arrays for its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whet.codegen.llvm.compile import ObjectJob
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.module import Module
from whet.core.digest import digest_text
from whet.core.target import Target
from whet.core.types import Array
from whet.ir.tensor import Compute, Tensor
from whet.measure.jobs import KernelJob, Kind, Parameter, contiguous
from whet.schedule.kernel import Kernel, prepare_constant
from whet.tasks.examples import Example
from whet.tasks.task import Task

SYMBOL = "kernel"


@dataclass(frozen=True, eq=False)
class Bench:
    """A task with example arrays and what its kernels are tried on."""

    task: Task
    example: Example
    target: Target
    threads: int
    packed: dict[str, Array]
    """Constants in the order in which kernels read them, made once."""


def object_job(kernel: Kernel, target: Target) -> ObjectJob:
    """The kernel as text IR for the machine."""
    module = Module()
    emit_program(kernel.program, module)
    features = ",".join(f"+{f}" for f in target.features)
    return ObjectJob(module.text(), target.triple, target.cpu, features)


def kernel_job(kernel: Kernel, bench: Bench, *, exact: bool) -> tuple[KernelJob, dict[str, Array]]:
    """What the kernel runs on, and the arrays that it names."""
    task, example = bench.task, bench.example
    arrays: dict[str, Array] = {}
    parameters: list[Parameter] = []
    numbers: dict[Tensor, int] = {}

    def number(tensor: Tensor) -> int:
        if tensor not in numbers:
            numbers[tensor] = len(parameters)
            if tensor in task.buffers:
                parameters.append(_boundary(tensor, task))
                arrays[parameters[-1].array] = _values(tensor, task, example)
            else:
                assert isinstance(tensor, Compute)
                key = f"{task.key}.{digest_text(str(tensor.body), str(tensor.shape))}"
                if key not in bench.packed:
                    constants = {t: example.inputs[t] for t in task.constants}
                    bench.packed[key] = prepare_constant(tensor, task, constants)
                arrays[key] = bench.packed[key]
                parameters.append(contiguous("constant", key, tensor.dtype.name, tensor.shape))
        return numbers[tensor]

    table = [number(t) for t in (*kernel.arguments, *kernel.results)]
    for buffer in kernel.program.workspace:
        table.append(len(parameters))
        parameters.append(contiguous("workspace", "", buffer.dtype.name, buffer.shape))
    cache = bench.target.l3_bytes or bench.target.l2_bytes
    job = KernelJob(SYMBOL, bench.threads, exact, tuple(parameters), tuple(table), cache)
    return job, arrays


def _boundary(tensor: Tensor, task: Task) -> Parameter:
    buffer = task.buffers[tensor]
    kind: Kind = "input"
    if tensor in task.outputs:
        kind = "output"
    elif tensor in task.constants:
        kind = "constant"
    return Parameter(kind, f"{task.key}.{tensor.name}", tensor.dtype.name, tensor.shape,
                     buffer.element_strides, buffer.offset, task.borders.get(tensor))  # fmt: skip


def _values(tensor: Tensor, task: Task, example: Example) -> Array:
    known: Mapping[Tensor, Array] = {**example.inputs, **dict(zip(task.outputs, example.outputs))}
    return known[tensor]
