"""Values that are read along another axis than they are written along go through shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import check_kernel
from tests.schedule.small_tasks import make_task
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.compiled import run_text
from whet.core.dtypes import DType, f16, f32, f64, i8, i64
from whet.core.gpu import PRESETS
from whet.core.types import Shape
from whet.ir.expr import Read, call, cast
from whet.ir.program import Buffer, Store, walk
from whet.ir.tensor import Tensor, compute, placeholder
from whet.ir.threads import thread_nests
from whet.schedule.default import draft
from whet.schedule.families.gpu_turned.lower import lower_gpu_turned
from whet.schedule.families.gpu_turned.match import GpuTurned, GpuTurnedTiling
from whet.schedule.families.gpu_turned.price import gpu_turned_costs
from whet.schedule.families.gpu_turned.sketch import GpuTurnedSketch
from whet.tasks.examples import make_example
from whet.tasks.task import Task

SKETCH = GpuTurnedSketch()


def turned(m: int, n: int, dtype: DType = f32, batch: int = 1) -> Task:
    x = placeholder((batch, m, n), dtype, "x")
    return make_task(compute((batch, n, m), lambda b, i, j: x[b, j, i], "y"))


def with_operands(m: int, n: int) -> Task:
    """Two turned operands of different types, one that is not, and one for every row."""
    x, z = placeholder((m, n), f32, "x"), placeholder((m, n), f16, "z")
    r, s = placeholder((n, m), f32, "r"), placeholder((n,), f32, "s")
    return make_task(
        compute(
            (n, m),
            lambda i, j: call("max", x[j, i] * s[(i,)] + cast(z[j, i], f32), 0.0) + r[i, j],
            "y",
        )
    )


def channels_last(shape: Shape) -> Task:
    """An image stored channels last, with room for zeros around it."""
    _, c, h, w = shape
    x = placeholder(shape, f32, "x")
    y = compute(shape, lambda i, j, k, m: x[i, j, k, m], "y")
    strides = ((h + 2) * (w + 2) * c, 1, (w + 2) * c, c)
    buffers: dict[Tensor, Buffer] = {
        x: Buffer("x", shape, f32), y: Buffer("y", shape, f32, strides, (w + 3) * c)
    }  # fmt: skip
    return Task((y,), buffers, frozenset(), {y: ((0, 0), (0, 0), (1, 1), (1, 1))})


TASKS = {
    "whole": turned(64, 96), "odd": turned(37, 101), "batch": turned(33, 70, batch=3),
    "short": turned(17, 200), "both short": turned(19, 23), "halves": turned(65, 40, f16),
    "doubles": turned(40, 50, f64), "bytes": turned(70, 45, i8), "integers": turned(33, 34, i64),
    "operands": with_operands(45, 66), "channels last": channels_last((2, 20, 9, 35)),
}  # fmt: skip


def fitted(task: Task) -> GpuTurned:
    form = SKETCH.fits(task)
    assert form is not None
    return form


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("name", TASKS)
def test_tiles_mean_the_task(name: str, size: int) -> None:
    task = TASKS[name]
    kernel = lower_gpu_turned(fitted(task), GpuTurnedTiling(size), "k")
    check_kernel(kernel, task, make_example(task, 1))


@needs_text_runner
@pytest.mark.parametrize("name", ["odd", "bytes", "operands", "both short"])
def test_text_means_the_task(name: str) -> None:
    task = TASKS[name]
    kernel = lower_gpu_turned(fitted(task), GpuTurnedTiling(32), "k")
    check_kernel(kernel, task, make_example(task, 2), run=run_text)


def test_turned_operands_go_through_shared_memory_and_others_do_not() -> None:
    kernel = lower_gpu_turned(fitted(with_operands(64, 64)), GpuTurnedTiling(32), "k")
    (nest,) = thread_nests(kernel.program)
    stores = [s for s in walk(nest.body) if isinstance(s, Store)]
    read = {
        (s.buffer.scope, e.tensor.name)
        for s in stores for e in (s.value, *s.value.children()) if isinstance(e, Read)
    }  # fmt: skip
    assert {("shared", "x"), ("shared", "z")} <= read
    assert not {("memory", "x"), ("memory", "z")} & read
    assert len(nest.shared) == 2


def test_what_fits() -> None:
    x = placeholder((64, 64), f32, "x")
    assert SKETCH.fits(make_task(compute((64, 64), lambda i, j: x[i, j] * 2.0, "y"))) is None
    assert SKETCH.fits(turned(8, 4000)) is None
    wide = placeholder((20, 30, 40), f32, "x")
    kept = make_task(compute((30, 20, 40), lambda i, j, k: wide[j, i, k], "y"))
    assert SKETCH.fits(kept) is None  # rows stay rows
    both = placeholder((64, 64, 64), f32, "x")
    several = make_task(compute((64,) * 3, lambda i, j, k: both[k, j, i] + both[k, i, j], "y"))
    assert SKETCH.fits(several) is None  # along two axes


@pytest.mark.parametrize("preset", PRESETS)
def test_large_transpositions_are_turned(preset: str) -> None:
    target = PRESETS[preset]
    chosen = draft(turned(512, 512, batch=16), target, 1)
    assert chosen is not None
    assert chosen.sketch.name == "gpu_turned"
    for task in TASKS.values():
        form = fitted(task)
        costs = gpu_turned_costs(form, target, 1, SKETCH.space(form, target, 1))
        assert np.isfinite(costs).all()
        assert (costs > 500).all()
