"""Whole plans for GPUs, run kernel by kernel in memory that is laid out as they say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.schedule.gpu.lockstep_kernels import Run
from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.graph.graph import Constant, Graph
from whet.ir import interpreter
from whet.ir.lockstep import run_threads
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Tensor
from whet.schedule.gpu_prices import GpuPrice
from whet.schedule.program.kernel import Kernel, prepare_constant
from whet.schedule.space.registry import allowed_sketches
from whet.tasks.layout import strides_of
from whet.tasks.places import Storage
from whet.tasks.plan import plan_graph
from whet.tasks.steps import LoopStep, Plan, Step
from whet.tasks.task import Task


def run_plan(
    graph: Graph, price: GpuPrice, inputs: Sequence[Array], seed: int, run: Run = run_threads
) -> list[Array]:
    """The outputs of a graph that is one segment, by any kernels of its tasks, run by `run`."""
    plan = plan_graph(graph, price, lambda dtype: not dtype.is_storage_only)
    (part,) = plan.plans.values()
    return _Call(part, price.target, inputs, np.random.default_rng(seed), run).outputs()


def any_kernel(task: Task, target: GpuTarget, name: str, rng: np.random.Generator) -> Kernel:
    """One of the kernels that some sketch offers for the task."""
    offered = []
    for sketch in allowed_sketches(target, "real"):
        form = sketch.fits(task)
        space = None if form is None else sketch.space(form, target, 1)
        if space and len(next(iter(space.values()))):
            offered.append((sketch, form, space))
    sketch, form, space = offered[int(rng.integers(len(offered)))]
    row = int(rng.integers(len(next(iter(space.values())))))
    return sketch.lower(form, {hole: int(column[row]) for hole, column in space.items()}, name)


class _Call:
    """The memory of one call."""

    def __init__(
        self, plan: Plan, target: GpuTarget, inputs: Sequence[Array], rng: np.random.Generator,
        run: Run,
    ) -> None:  # fmt: skip
        self.plan, self.target, self.rng, self.run = plan, target, rng, run
        self.given = dict(zip(plan.graph.inputs, inputs, strict=True))
        self.memory: dict[Storage, Array] = {}
        for number, step in enumerate(plan.steps):
            if isinstance(step, LoopStep):
                self._loops(step)
            else:
                assert isinstance(step, Step)
                self._kernel(step, f"step_{number}")

    def outputs(self) -> list[Array]:
        placement = self.plan.placement
        places = [
            placement.leaving.get(n) or placement.places[v]
            for n, v in enumerate(self.plan.graph.outputs)
        ]
        return [
            _elements(self._of(p.storage), v.tensor_type.shape, p.strides, p.offset).copy()
            for p, v in zip(places, self.plan.graph.outputs)
        ]

    def _of(self, storage: Storage) -> Array:
        if storage not in self.memory:
            self.memory[storage] = self._new(storage)
        return self.memory[storage]

    def _new(self, storage: Storage) -> Array:
        """What callers give, or memory with nothing in it but the zeros around a value."""
        if storage.kind == "input":
            return np.ascontiguousarray(self.given[storage.value]).reshape(-1)
        if isinstance(storage.value, Constant) and storage.kind == "constant":
            return np.ascontiguousarray(storage.value.array).reshape(-1)
        made = _poison(storage.size, storage.dtype.numpy)
        around = storage.geometry
        if around is not None:
            made[:] = 0
            place = strides_of(around.shape, around.inner, around.border)
            inside = _elements(made, around.shape, place[0], place[1])
            inside[...] = _poison(inside.size, storage.dtype.numpy).reshape(inside.shape)
        return made

    def _loops(self, step: LoopStep) -> None:
        count = len(step.program.inputs)
        parameters = (*step.program.inputs, *step.program.outputs)
        views = [_view(b, self._of(s)) for b, s in zip(parameters, step.storages, strict=True)]
        for view, result in zip(views[count:], interpreter.run(step.program, views[:count])):
            view[...] = result

    def _kernel(self, step: Step, name: str) -> None:
        task = step.task
        kernel = any_kernel(task, self.target, name, self.rng)
        known = {
            t: _view(task.buffers[t], self._of(step.storages[t])).copy() for t in task.constants
        }

        def argument(buffer: Buffer, tensor: Tensor) -> Array:
            if tensor not in step.storages:
                assert isinstance(tensor, Compute)
                return prepare_constant(tensor, task, known)
            memory = self._of(step.storages[tensor])
            if buffer is task.buffers[tensor]:
                return _view(buffer, memory)
            return memory[: buffer.shape[0]].copy()

        program = kernel.program
        arrays = list(map(argument, program.inputs, kernel.arguments))
        constant = [
            b for b, t in zip(program.inputs, kernel.arguments)
            if t not in step.storages or t in task.constants
        ]  # fmt: skip
        for buffer, tensor, made in zip(
            program.outputs, kernel.results, self.run(program, arrays, constant), strict=True
        ):
            own = task.buffers[tensor]
            target = _view(own, self._of(step.storages[tensor]))
            if made.ndim == 1 and buffer is not own:
                written = _view(own, made).copy()
                _view(own, made)[...] = _poison(written.size, made.dtype).reshape(written.shape)
                assert np.array_equal(
                    made.view(np.uint8), _poison(made.size, made.dtype).view(np.uint8)
                ), f"{name} writes beside its result"
                made = written
            target[...] = made.reshape(target.shape)


def _poison(size: int, dtype: np.dtype) -> Array:
    """What `run_threads` leaves where nothing is written."""
    if dtype.kind in "fV":
        return np.full(size, np.nan, dtype)
    return np.full(size, 0x55, np.uint8).astype(dtype)


def _view(buffer: Buffer, memory: Array) -> Array:
    return _elements(memory, buffer.shape, buffer.element_strides, buffer.offset)


def _elements(memory: Array, shape: Sequence[int], strides: Sequence[int], offset: int) -> Array:
    """Elements of a long row as an array."""
    steps = [s * memory.itemsize for s in strides]
    return np.ndarray(shape, memory.dtype, memory.data, offset * memory.itemsize, steps)
