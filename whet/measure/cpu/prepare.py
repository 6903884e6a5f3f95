"""From a candidate to what can be built and run: its program, and arrays for its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.codegen.llvm.generator import LlvmGenerator
from whet.core.cpu import CpuTarget
from whet.core.digest import digest_text
from whet.core.errors import fail
from whet.core.outcomes import Outcome
from whet.core.types import Array
from whet.ir.tensor import Compute, Tensor, describe
from whet.measure.cpu.jobs import KernelJob, Kind, Parameter, contiguous
from whet.measure.cpu.limits import over_limit
from whet.measure.results import Candidate, Measured
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel, prepare_constant
from whet.schedule.space.registry import SKETCHES, find_sketch
from whet.schedule.space.trace import Trace, replay_kernel
from whet.tasks.examples import Example
from whet.tasks.task import Task

SYMBOL = "kernel"
GIVEN_LEAD = 16
"""Where arrays of the caller's begin, in bytes behind an aligned address.

The C library puts its own 16 bytes in front of large blocks, and NumPy begins right behind them:
every vector of 64 bytes that is read there lies in two lines of the cache.
"""


@dataclass(frozen=True, eq=False)
class Bench:
    """A task with example arrays and what its kernels are tried on."""

    task: Task
    example: Example
    target: CpuTarget
    threads: int
    packed: dict[str, Array]
    """Constants in the order in which kernels read them, made once."""
    forms: dict[str, Any]
    """The forms that sketches see in the task, found once."""


@dataclass(frozen=True, eq=False)
class Lowered:
    """A candidate's kernel, and what is to be compiled for it."""

    candidate: Candidate
    kernel: Kernel
    job: Mapping[str, str]
    has_status: bool
    """Whether its table ends with the address of a status."""
    exact: bool
    """Whether its results must have the very bits of the expected ones."""


def lower(candidate: Candidate, bench: Bench) -> Lowered | Measured:
    """The candidate's kernel, or why there is none."""
    try:
        kernel, numeric = _kernel(candidate, bench)
        reason = over_limit(kernel.program, bench.target)
        if reason is not None:
            return Measured(candidate, Outcome.LIMIT, (), reason)
        generator = LlvmGenerator(bench.target)
        source = generator.source(kernel.program)
    except Exception as error:  # sketches may be the user's, and holes anything: it is recorded
        text = f"{type(error).__name__}: {error}"
        return Measured(candidate, Outcome.BUILD_ERROR, (), text.splitlines()[0])
    exact = bench.example.exact and numeric == "exact"
    return Lowered(candidate, kernel, generator.job(source.text), source.has_status, exact)


def _kernel(candidate: Candidate, bench: Bench) -> tuple[Kernel, Numeric]:
    if candidate.trace:
        trace = Trace.from_json(candidate.trace).with_holes(candidate.holes)
        first = trace.steps[0].kind if trace.steps else ""
        numeric = SKETCHES[first].numeric if first in SKETCHES else "exact"
        return replay_kernel(trace, bench.task, SYMBOL), numeric
    sketch = find_sketch(candidate.sketch)
    if candidate.sketch not in bench.forms:
        bench.forms[candidate.sketch] = sketch.fits(bench.task)
    form = bench.forms[candidate.sketch]
    if form is None:
        fail("WH2121", f"sketch '{candidate.sketch}' does not fit the task")
    return sketch.lower(form, candidate.holes, SYMBOL), sketch.numeric


def kernel_job(made: Lowered, bench: Bench) -> tuple[KernelJob, dict[str, Array]]:
    """The memory that the kernel runs on, and the arrays that it names."""
    kernel = made.kernel
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
                key = f"{task.key}.{digest_text(describe(tensor))}"
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
    if made.has_status:
        table.append(len(parameters))
        parameters.append(contiguous("workspace", "", "i64", (1,)))
    cache = bench.target.l3_bytes or bench.target.l2_bytes
    job = KernelJob(SYMBOL, bench.threads, made.exact, tuple(parameters), tuple(table), cache)
    return job, arrays


def _boundary(tensor: Tensor, task: Task) -> Parameter:
    buffer = task.buffers[tensor]
    kind: Kind = "input"
    if tensor in task.outputs:
        kind = "output"
    elif tensor in task.constants:
        kind = "constant"
    return Parameter(kind, f"{task.key}.{tensor.name}", tensor.dtype.name, tensor.shape,
                     buffer.element_strides, buffer.offset, task.borders.get(tensor),
                     GIVEN_LEAD if tensor in task.given else 0)  # fmt: skip


def _values(tensor: Tensor, task: Task, example: Example) -> Array:
    known: Mapping[Tensor, Array] = {**example.inputs, **dict(zip(task.outputs, example.outputs))}
    return known[tensor]
