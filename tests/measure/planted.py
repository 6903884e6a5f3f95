"""Tasks to measure, and sketches whose kernels are wrong in a chosen way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tests.targets import HOST
from whet.core.cpu import CpuTarget
from whet.core.dtypes import bool_, f32
from whet.core.types import Array
from whet.ir.expr import Var, call, const
from whet.ir.program import Allocate, Buffer, Loop, Program, Stmt, Store, While
from whet.ir.tensor import Compute, Placeholder, Tensor, compute, reduce_axis, sum_
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import SKETCHES, add_sketch
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task

TARGET = HOST


def matmul_task(rows: int, depth: int, columns: int) -> Task:
    """relu(x @ w), w constant."""
    x = Placeholder("x0", (rows, depth), f32)
    w = Placeholder("x1", (depth, columns), f32)
    k = reduce_axis(depth, "k")
    zero = const(0.0, f32)
    y = compute((rows, columns), lambda i, j: call("max", sum_(x[i, k] * w[k, j], k), zero), "s0")
    return task_of((x, w), y, frozenset([w]))


def double_task(size: int = 100) -> Task:
    """2 * x, on which kernels can be written by hand."""
    x = Placeholder("x0", (size,), f32)
    return task_of((x,), compute((size,), lambda i: x[i] * const(2.0, f32), "s0"), frozenset())


def task_of(inputs: tuple[Tensor, ...], y: Compute, constants: frozenset[Tensor]) -> Task:
    buffers = {t: Buffer(t.name, t.shape, t.dtype) for t in (*inputs, y)}
    return Task((y,), buffers, constants, {})


@dataclass(frozen=True)
class Planted(Sketch[Task, CpuTarget]):
    """Kernels of `double_task`, each with a fault of its own; holes choose which."""

    name: str = "planted"
    numeric: Numeric = "exact"

    def fits(self, task: Task) -> Task | None:
        return task if len(task.inputs) == 1 else None

    def space(self, form: Task, target: CpuTarget, threads: int) -> Population:
        return {"fault": np.arange(len(FAULTS))}

    def costs(self, form: Task, target: CpuTarget, threads: int, population: Population) -> Array:
        return np.full(len(population["fault"]), 1e12)

    def lower(self, form: Task, holes: Mapping[str, int], name: str) -> Kernel:
        x, y = form.buffers[form.inputs[0]], form.buffers[form.outputs[0]]
        body = FAULTS[list(FAULTS)[holes["fault"]]](x, y)
        return Kernel(Program(name, (x,), (y,), body), form.inputs, form.outputs)


I = Var("i")  # noqa: E741 - the index of all these loops
TWO = const(2.0, f32)


def _loop(x: Buffer, extent: int, *body: Stmt) -> tuple[Stmt, ...]:
    return (Loop(I, const(extent, I.dtype), body),)


def _right(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    return _loop(x, x.shape[0], Store(y, (I,), x[I] * TWO))


def _wrong_constant(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    return _loop(x, x.shape[0], Store(y, (I,), x[I] * const(2.0000002, f32)))


def _unfinished(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    return _loop(x, x.shape[0] - 1, Store(y, (I,), x[I] * TWO))


def _reads_behind(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    store = Store(y, (I,), x[I] * TWO + (x[I + 1] - x[I + 1]))
    return _loop(x, x.shape[0], store)


def _writes_before(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    return (Store(y, (const(-1, I.dtype),), TWO), *_right(x, y))


def _writes_input(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    return (*_right(x, y), Store(x, (const(0, I.dtype),), TWO))


def _hangs(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    first = (const(0, I.dtype),)
    return (*_right(x, y), While(const(True, bool_), (Store(y, first, y[first] + TWO),)))


def _unrolled(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    return (Loop(I, const(100_000, I.dtype), _right(x, y), "unroll"),)


def _stacked(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    return (Allocate(Buffer("scratch", (1 << 20,), f32), _right(x, y)),)


def _raises(x: Buffer, y: Buffer) -> tuple[Stmt, ...]:
    raise ZeroDivisionError("no such tile")


FAULTS = {
    "right": _right,
    "wrong constant": _wrong_constant,
    "unfinished": _unfinished,
    "reads behind": _reads_behind,
    "writes before": _writes_before,
    "writes input": _writes_input,
    "hangs": _hangs,
    "unrolled": _unrolled,
    "stacked": _stacked,
    "raises": _raises,
}


def plant() -> None:
    """Adds the sketch, once per process."""
    if Planted.name not in SKETCHES:
        add_sketch(Planted())


def uproot() -> None:
    SKETCHES.added.pop(Planted.name, None)
