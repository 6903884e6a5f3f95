"""Kernels of GPU sketches, run by definition and compared with what their tasks mean."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tests.schedule.small_tasks import make_task
from whet.core.cpu import PRESETS as CPU_PRESETS
from whet.core.dtypes import DType
from whet.core.gpu import PRESETS, GpuTarget
from whet.core.types import Array
from whet.graph.graph import Graph, apply, make_input
from whet.graph.passes import expand_composites
from whet.ir.expr import Expr, Read
from whet.ir.lockstep import run_threads
from whet.ir.program import Buffer, Program
from whet.ir.tensor import Compute, Placeholder, Tensor, producers, stages
from whet.ops import REGISTRY
from whet.ops.base import Sample
from whet.schedule.prices import AnalyticPrice
from whet.schedule.program.access import map_expr
from whet.schedule.program.kernel import Kernel, prepare_constant
from whet.schedule.space.sketch import Holes, Population, Sketch
from whet.tasks.examples import Example, make_example
from whet.tasks.plan import plan_graph
from whet.tasks.steps import Step
from whet.tasks.task import Task

TARGET: GpuTarget = PRESETS["cuda-sm_90a"]
TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 3e-2, "bf16": 2e-1}


class Run(Protocol):
    """Runs a program: in lockstep, or by its text."""

    def __call__(
        self, program: Program, arrays: Sequence[Array], constants: Collection[Buffer]
    ) -> tuple[Array, ...]: ...


def check_kernel(
    kernel: Kernel, task: Task, example: Example, tolerance: float | None = None,
    run: Run = run_threads,
) -> None:  # fmt: skip
    """The kernel, run thread by thread, gives what the task means, within a tolerance that may be
    another than that of the type."""
    program = kernel.program
    arrays = [
        _stored(buffer, tensor, task, example)
        for buffer, tensor in zip(program.inputs, kernel.arguments, strict=True)
    ]
    known = [
        buffer
        for buffer, tensor in zip(program.inputs, kernel.arguments, strict=True)
        if isinstance(tensor, Compute) or tensor in task.constants
    ]
    results = run(program, arrays, known)
    for buffer, tensor, memory in zip(program.outputs, kernel.results, results, strict=True):
        assert isinstance(tensor, Compute)
        want = example.outputs[task.outputs.index(tensor)]
        got = _view(task.buffers[tensor], memory) if buffer.rank == 1 else memory
        assert_close(got.reshape(want.shape), want, tensor.dtype, str(program), tolerance)


def assert_close(
    got: Array, want: Array, dtype: DType, text: str, tolerance: float | None = None
) -> None:
    if not dtype.is_float:
        np.testing.assert_array_equal(got, want, err_msg=text)
        return
    allowed = TOLERANCE.get(dtype.name, 0.0) if tolerance is None else tolerance
    wide = (np.asarray(a, np.float64) for a in (got, want))
    np.testing.assert_allclose(*wide, rtol=allowed, atol=allowed, err_msg=text)


def _stored(buffer: Buffer, tensor: Tensor, task: Task, example: Example) -> Array:
    """The array behind a parameter: as it is indexed, or all of its memory, zeros included."""
    if tensor not in example.inputs:
        assert isinstance(tensor, Compute)
        known = {t: example.inputs[t] for t in task.constants}
        return prepare_constant(tensor, task, known)
    array = example.inputs[tensor]
    if buffer is task.buffers[tensor] and buffer.strides is not None:
        return array
    if buffer.shape == array.shape:
        return array
    memory = np.zeros(buffer.shape, array.dtype)
    _view(task.buffers[tensor], memory)[...] = array
    return memory


def _view(buffer: Buffer, memory: Array) -> Array:
    """The elements of a buffer in its memory."""
    size = memory.itemsize
    raw = np.ascontiguousarray(memory).view(np.uint8)
    strides = [s * size for s in buffer.element_strides]
    return np.ndarray(buffer.shape, memory.dtype, raw.data, buffer.offset * size, strides)


def candidates(space: Population, count: int, seed: int) -> Iterator[Holes]:
    """Some candidates of a space, in any order."""
    size = len(next(iter(space.values())))
    for row in np.random.default_rng(seed).permutation(size)[:count]:
        yield {hole: int(column[row]) for hole, column in space.items()}


def check_candidates(
    sketch: Sketch[Any, Any], task: Task, count: int, seed: int = 0, run: Run = run_threads
) -> None:
    """Some candidates of a task that the sketch must fit."""
    form = sketch.fits(task)
    assert form is not None
    example = make_example(task, seed)
    chosen = list(candidates(sketch.space(form, TARGET, 1), count, seed))
    assert chosen
    for holes in chosen:
        check_kernel(sketch.lower(form, holes, "kernel"), task, example, run=run)


def cheapest(sketch: Sketch[Any, Any], task: Task) -> Holes:
    """The candidate that the sketch expects to be fastest."""
    form = sketch.fits(task)
    assert form is not None
    space = sketch.space(form, TARGET, 1)
    best = int(np.argmin(sketch.costs(form, TARGET, 1, space)))
    return {hole: int(column[best]) for hole, column in space.items()}


# ------------------------------------------------------------------------------------ operators
def operator_samples() -> list[tuple[str, Sample]]:
    """All samples of operators that have a tensor expression."""
    return [
        (f"{name}-{n}", sample)
        for name, cls in sorted(REGISTRY.items())
        for n, sample in enumerate(cls.samples())
        if sample.op.compute is not None and all(t.size for t in sample.types)
    ]


def sample_stages(sample: Sample) -> Iterator[Task]:
    """Every stage of an operator as a task of its own; those without elements are nobody's."""
    inputs = tuple(Placeholder(f"x{n}", t.shape, t.dtype) for n, t in enumerate(sample.types))
    for stage in stages(sample.op.compute_tensors(inputs)):
        if isinstance(stage, Compute) and stage.type.size:
            own: dict[Tensor, Tensor] = {
                t: Placeholder(f"x{n}", t.shape, t.dtype) for n, t in enumerate(producers(stage))
            }

            def renamed(e: Expr, own: dict[Tensor, Tensor] = own) -> Expr | None:
                if not isinstance(e, Read):
                    return None
                return Read(own[e.tensor], tuple(map_expr(i, renamed) for i in e.indices))

            yield make_task(Compute("y", stage.axes, map_expr(stage.body, renamed)))


def sample_task(sample: Sample) -> Task:
    """An operator as one task."""
    inputs = tuple(Placeholder(f"x{n}", t.shape, t.dtype) for n, t in enumerate(sample.types))
    made = sample.op.compute_tensors(inputs)
    return make_task(*(t for t in made if isinstance(t, Compute)))


def planned_tasks(sample: Sample) -> Iterator[Task]:
    """The tasks that the planner makes of an operator, whatever it is composed of."""
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(sample.types))
    results = apply(sample.op, *inputs)
    graph = Graph(inputs, results, tuple(f"y{n}" for n in range(len(results))))
    price = AnalyticPrice(CPU_PRESETS["x86-64-v3"], 1, "exact")
    plan = plan_graph(expand_composites(graph), price, lambda dtype: not dtype.is_storage_only)
    for part in plan.plans.values():
        yield from (step.task for step in part.steps if isinstance(step, Step))
