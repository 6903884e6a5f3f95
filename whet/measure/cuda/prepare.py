"""From a candidate to what can be built and run on a GPU: its launches and its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.codegen.cuda.generator import CudaGenerator
from whet.codegen.cuda.launch import Launch, launches_of
from whet.core.gpu import GpuTarget
from whet.core.outcomes import Outcome
from whet.core.precision import STRICT
from whet.core.types import Array
from whet.ir.program import walk
from whet.ir.tensor import Compute, Tensor
from whet.ir.threads import MatrixMultiplyAdd
from whet.measure.binding import bind, kernel_of
from whet.measure.cuda.examples import Trial
from whet.measure.cuda.jobs import Check, GpuJob
from whet.measure.cuda.precise import tolerance_of
from whet.measure.results import Candidate, Measured
from whet.schedule.program.kernel import Kernel, prepare_constant
from whet.tasks.task import Task

MOST_THREADS = 1024
MOST_WORKSPACE_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Bench:
    """A task with the values that its kernels are tried on."""

    task: Task
    trials: tuple[Trial, ...]
    target: GpuTarget
    packed: dict[str, Array] = field(default_factory=dict)
    """Constants in the order in which kernels read them, made once."""
    forms: dict[str, Any] = field(default_factory=dict)
    """The forms that sketches see in the task, found once."""

    @property
    def symbol(self) -> str:
        """The name of its kernels: that which a build gives them, so that it finds them in the
        cache."""
        return f"k{self.task.key[:24]}"


@dataclass(frozen=True, eq=False)
class Lowered:
    """A candidate's kernel, and what is to be compiled for it."""

    candidate: Candidate
    kernel: Kernel
    launches: tuple[Launch, ...]
    job: Mapping[str, str]
    has_status: bool
    exact: bool
    """Whether its results must have the very bits of expected ones that nothing rounds."""


def lower(candidate: Candidate, bench: Bench) -> Lowered | Measured:
    """The candidate's kernel, or why there is none."""
    try:
        kernel, numeric = kernel_of(candidate, bench.task, bench.symbol, bench.forms)
        launches = launches_of(kernel.program)
        reason = over_limit(kernel, launches, bench.target)
        if reason is not None:
            return Measured(candidate, Outcome.LIMIT, (), reason)
        generator = CudaGenerator(bench.target)
        source = generator.source(kernel.program)
    except Exception as error:  # sketches may be the user's, and holes anything: it is recorded
        text = f"{type(error).__name__}: {error}"
        return Measured(candidate, Outcome.BUILD_ERROR, (), text.splitlines()[0])
    job = generator.job(source.text)
    return Lowered(candidate, kernel, launches, job, source.has_status, numeric == "exact")


def over_limit(kernel: Kernel, launches: tuple[Launch, ...], target: GpuTarget) -> str | None:
    """Why the target cannot run the kernel; None if it may."""
    workspace = sum(b.type.nbytes for b in kernel.program.workspace)
    if workspace > MOST_WORKSPACE_BYTES:
        return f"{workspace} bytes of working memory, the limit is {MOST_WORKSPACE_BYTES}"
    for launch in launches:
        for what, count, limit in (
            ("threads in a block", launch.threads, MOST_THREADS),
            ("blocks in a cluster", launch.cluster, target.cluster_limit),
            ("bytes of shared memory", launch.shared_bytes, target.shared_bytes),
        ):
            if count > limit:
                return f"{count} {what}, the limit is {limit}"
    return None


def gpu_job(made: Lowered, bench: Bench) -> tuple[GpuJob, dict[str, Array]]:
    """The memory that the kernel runs on, and the arrays that its checks name."""
    bound = bind(made.kernel, bench.task, has_status=made.has_status)
    rounds = any(isinstance(s, MatrixMultiplyAdd) for s in walk(made.kernel.program.body))
    tolerance = tolerance_of(bench.task.outputs, bench.target.precision if rounds else STRICT)
    checks = [Check(t.name, "exact" if t.exact and made.exact else tolerance) for t in bench.trials]
    arrays = {
        check.key(p.array): _values(tensor, check.key(p.array), trial, bench)
        for check, trial in zip(checks, bench.trials, strict=True)
        for tensor, p in zip(bound.tensors, bound.parameters)
    }
    early = bench.target.has_dependent_launch
    return GpuJob(made.launches, early, bound.parameters, bound.table, tuple(checks)), arrays


def _values(tensor: Tensor, key: str, trial: Trial, bench: Bench) -> Array:
    if tensor in bench.task.buffers:
        return trial.values[tensor]
    if key not in bench.packed:
        assert isinstance(tensor, Compute)
        constants = {t: trial.values[t] for t in bench.task.constants}
        bench.packed[key] = prepare_constant(tensor, bench.task, constants)
    return bench.packed[key]
