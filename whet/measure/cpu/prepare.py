"""From a candidate to what can be built and run: its program, and arrays for its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.codegen.llvm.generator import LlvmGenerator
from whet.core.cpu import CpuTarget
from whet.core.outcomes import Outcome
from whet.core.types import Array
from whet.ir.tensor import Compute, Tensor
from whet.measure.binding import bind, kernel_of
from whet.measure.cpu.jobs import KernelJob
from whet.measure.cpu.limits import over_limit
from whet.measure.results import Candidate, Measured
from whet.schedule.program.kernel import Kernel, prepare_constant
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
        kernel, numeric = kernel_of(candidate, bench.task, SYMBOL, bench.forms)
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


def kernel_job(made: Lowered, bench: Bench) -> tuple[KernelJob, dict[str, Array]]:
    """The memory that the kernel runs on, and the arrays that it names."""
    bound = bind(made.kernel, bench.task, has_status=made.has_status, lead=GIVEN_LEAD)
    arrays = {p.array: _values(t, p.array, bench) for t, p in zip(bound.tensors, bound.parameters)}
    cache = bench.target.l3_bytes or bench.target.l2_bytes
    job = KernelJob(SYMBOL, bench.threads, made.exact, bound.parameters, bound.table, cache)
    return job, arrays


def _values(tensor: Tensor, key: str, bench: Bench) -> Array:
    task, example = bench.task, bench.example
    if tensor in task.buffers:
        known: Mapping[Tensor, Array] = {
            **example.inputs, **dict(zip(task.outputs, example.outputs))
        }  # fmt: skip
        return known[tensor]
    if key not in bench.packed:
        assert isinstance(tensor, Compute)
        constants = {t: example.inputs[t] for t in task.constants}
        bench.packed[key] = prepare_constant(tensor, task, constants)
    return bench.packed[key]
