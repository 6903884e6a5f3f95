"""Searches for positions on a GPU: threads and warps that share the terms of an output."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import TARGET, candidates, check_kernel
from tests.schedule.small_tasks import make_task
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.compiled import run_text
from whet.core.dtypes import DType, f16, f32, f64, i8, i32
from whet.core.gpu import PRESETS
from whet.ir.expr import cast
from whet.ir.tensor import compute, placeholder, reduce, reduce_axis
from whet.schedule.default import draft
from whet.schedule.families.gpu_arg.lower import lower_gpu_arg
from whet.schedule.families.gpu_arg.match import GpuArg, GpuArgTiling
from whet.schedule.families.gpu_arg.price import gpu_arg_costs
from whet.schedule.families.gpu_arg.sketch import GpuArgSketch
from whet.tasks.examples import Example, make_example
from whet.tasks.task import Task

SKETCH = GpuArgSketch()


def rows(m: int, n: int, kind: str = "argmax", dtype: DType = f32) -> Task:
    x, k = placeholder((m, n), dtype, "x"), reduce_axis(n, "k")
    return make_task(compute((m,), lambda i: reduce(kind, x[i, k], k), "y"))


def columns(m: int, n: int) -> Task:
    x, k = placeholder((m, n), f32, "x"), reduce_axis(m, "k")
    return make_task(compute((n,), lambda j: reduce("argmin", x[k, j], k) + j, "y"))


def both(m: int, n: int) -> Task:
    """The position within a matrix, as a number."""
    x, p, q = placeholder((3, m, n), f32, "x"), reduce_axis(m, "p"), reduce_axis(n, "q")
    return make_task(
        compute((3,), lambda i: cast(reduce("argmax", x[i, p, q] * 2.0, p, q), f32), "y")
    )


TASKS = {
    "one row": rows(1, 5000), "few rows": rows(3, 1000), "many rows": rows(50, 67),
    "argmin": rows(2, 300, "argmin"), "halves": rows(2, 333, dtype=f16),
    "doubles": rows(2, 257, dtype=f64), "bytes": rows(4, 700, dtype=i8),
    "integers": rows(2, 600, "argmin", i32), "columns": columns(400, 5), "both": both(21, 19),
}  # fmt: skip


def fitted(task: Task) -> GpuArg:
    form = SKETCH.fits(task)
    assert form is not None
    return form


@pytest.mark.parametrize("name", TASKS)
def test_any_candidate_means_the_task(name: str) -> None:
    task = TASKS[name]
    form, example = fitted(task), make_example(task, 1)
    for holes in candidates(SKETCH.space(form, TARGET, 1), 4, seed=len(name)):
        check_kernel(lower_gpu_arg(form, GpuArgTiling(**holes), "k"), task, example)


@needs_text_runner
@pytest.mark.parametrize("name", ["few rows", "many rows", "bytes", "both"])
def test_text_means_the_task(name: str) -> None:
    task = TASKS[name]
    form, example = fitted(task), make_example(task, 2)
    for holes in candidates(SKETCH.space(form, TARGET, 1), 2, seed=2):
        kernel = lower_gpu_arg(form, GpuArgTiling(**holes), "k")
        check_kernel(kernel, task, example, run=run_text)


@pytest.mark.parametrize("lanes", [8, 32, 128])
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_the_first_of_equals_counts_and_nan_is_better(kind: str, lanes: int) -> None:
    task = rows(7, 300, kind)
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (7, 300)).astype(np.float32)
    x[1] = 5.0
    x[2] = np.inf
    x[3] = -np.inf
    x[4, [299, 77, 250]] = np.nan
    x[5, 1::2] = np.inf
    x[6, 200:] = -np.inf
    found = getattr(np, kind)(x, axis=1)
    assert found.tolist()[1:5] == [0, 0, 0, 77]
    example = Example({task.inputs[0]: x}, (found,), exact=True)
    kernel = lower_gpu_arg(fitted(task), GpuArgTiling(lanes, 128), "k")
    check_kernel(kernel, task, example)


@pytest.mark.parametrize("preset", PRESETS)
def test_candidates_are_priced(preset: str) -> None:
    for task in TASKS.values():
        form = fitted(task)
        space = SKETCH.space(form, PRESETS[preset], 1)
        costs = gpu_arg_costs(form, PRESETS[preset], 1, space)
        assert np.isfinite(costs).all()
        assert (costs > 500).all()


def test_long_searches_are_shared_and_short_ones_are_not() -> None:
    long = draft(rows(1, 50257), TARGET, 1)
    assert long is not None
    assert long.sketch.name == "gpu_arg"
    assert long.nanoseconds < 10_000
    assert SKETCH.fits(rows(4, 31)) is None
    many = draft(columns(40, 100_000), TARGET, 1)  # neighbours in memory are other outputs
    assert many is not None
    assert many.sketch.name == "gpu_spatial"
