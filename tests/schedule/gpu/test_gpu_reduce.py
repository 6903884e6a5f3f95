"""Long reductions on a GPU: threads, warps and blocks that share the terms of an output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.schedule.gpu.lockstep_kernels import (
    TARGET,
    cheapest,
    check_candidates,
    check_kernel,
)
from tests.schedule.small_tasks import argmax, make_task, matmul
from whet.core.dtypes import bool_, f16, f32, f64
from whet.core.gpu import PRESETS
from whet.ir.expr import call
from whet.ir.tensor import compute, placeholder, reduce, reduce_axis, sum_
from whet.ir.threads import thread_nests
from whet.schedule.families.gpu_reduce.lower import lower_gpu_reduce
from whet.schedule.families.gpu_reduce.match import GpuReduce, GpuReduceTiling
from whet.schedule.families.gpu_reduce.sketch import GpuReduceSketch
from whet.schedule.families.gpu_spatial.sketch import GpuSpatialSketch
from whet.schedule.space.sketch import Sketch
from whet.tasks.examples import make_example
from whet.tasks.task import Task

SKETCH = GpuReduceSketch()


def rows_summed(m: int, k: int) -> Task:
    x, r = placeholder((m, k), f32, "x"), reduce_axis(k, "k")
    return make_task(compute((m,), lambda i: sum_(x[i, r], r) * 0.5, "y"))


def columns_summed(k: int, n: int) -> Task:
    x, r = placeholder((k, n), f32, "x"), reduce_axis(k, "k")
    return make_task(compute((n,), lambda j: sum_(x[r, j], r) * 0.5, "y"))


def all_summed(m: int, n: int) -> Task:
    x, p, q = placeholder((m, n), f32, "x"), reduce_axis(m, "p"), reduce_axis(n, "q")
    return make_task(compute((), lambda: sum_(x[p, q], p, q), "y"))


def window_summed(h: int, c: int) -> Task:
    """Every channel of the inside of an image: two axes that memory does not join."""
    x = placeholder((h + 2, h + 2, c), f32, "x")
    p, q = reduce_axis(h, "p"), reduce_axis(h, "q")
    return make_task(compute((c,), lambda j: sum_(x[p + 1, q + 1, j], p, q), "y"))


def vector_by_matrix(k: int, n: int) -> Task:
    a, b, r = placeholder((k,), f32, "a"), placeholder((n, k), f32, "b"), reduce_axis(k, "k")
    y = compute((n,), lambda j: call("max", sum_(a[(r,)] * b[j, r], r), 0.0), "y")
    return make_task(y, constants=[b])


def with_residual(n: int, k: int) -> Task:
    """A product with a constant bias, and with another operand that is added to it."""
    a, b, r = placeholder((3, k), f32, "a"), placeholder((n, k), f32, "b"), reduce_axis(k, "k")
    bias, x = placeholder((n,), f32, "bias"), placeholder((3, n), f32, "x")
    y = compute((3, n), lambda i, j: x[i, j] + (sum_(a[i, r] * b[j, r], r) + bias[(j,)]), "y")
    return make_task(y, constants=[b, bias])


TASKS: dict[str, Task] = {
    "rows": rows_summed(5, 300),
    "vectors": rows_summed(5, 512),
    "columns": columns_summed(197, 24),
    "all": all_summed(37, 64),
    "very many": all_summed(128, 150),
    "window": window_summed(14, 20),
    "vector by matrix": vector_by_matrix(256, 9),
    "residual": with_residual(12, 640),
    "product": matmul(3, 8, 100),
}


@pytest.mark.parametrize("name", TASKS)
def test_candidates_mean_the_task(name: str) -> None:
    check_candidates(SKETCH, TASKS[name], count=16)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all"])
def test_any_reduction(kind: str) -> None:
    x = placeholder((3, 70), bool_ if kind in ("any", "all") else f64, "x")
    k = reduce_axis(70, "k")
    check_candidates(SKETCH, make_task(compute((3,), lambda i: reduce(kind, x[i, k], k), "y")), 6)


def test_halves() -> None:
    x, k = placeholder((3, 256), f16, "x"), reduce_axis(256, "k")
    check_candidates(SKETCH, make_task(compute((3,), lambda i: sum_(x[i, k], k), "y")), count=6)


@pytest.mark.parametrize("blocks", [1, 8])
def test_clusters_read_each_other(blocks: int) -> None:
    task = all_summed(128, 150)
    form = SKETCH.fits(task)
    assert form is not None
    kernel = lower_gpu_reduce(form, GpuReduceTiling(256, 256, 0, 2, blocks), "kernel")
    (nest,) = thread_nests(kernel.program)
    assert nest.blocks == blocks
    assert len(nest.distributed) == (1 if blocks > 1 else 0)
    check_kernel(kernel, task, make_example(task))


def test_what_does_not_fit() -> None:
    assert SKETCH.fits(argmax(4, 100)) is None  # positions are the work of one thread
    assert SKETCH.fits(rows_summed(4, 20)) is None
    assert SKETCH.fits(make_task(compute((4,), lambda i: i * 2, "y"))) is None


def test_program(golden: Callable[[str], None]) -> None:
    form = SKETCH.fits(rows_summed(6, 1000))
    assert form is not None
    golden(str(lower_gpu_reduce(form, GpuReduceTiling(32, 64, 0, 4), "kernel").program))


def test_program_of_a_cluster(golden: Callable[[str], None]) -> None:
    form = SKETCH.fits(all_summed(256, 512))
    assert form is not None
    golden(str(lower_gpu_reduce(form, GpuReduceTiling(256, 256, 0, 4, 8), "kernel").program))


def vector_by_columns(k: int, n: int) -> Task:
    a, b, r = placeholder((k,), f32, "a"), placeholder((k, n), f32, "b"), reduce_axis(k, "k")
    return make_task(compute((n,), lambda j: sum_(a[(r,)] * b[r, j], r), "y"), constants=[b])


# -------------------------------------------------------------------------------------- prices
def price(sketch: Sketch[Any, Any], task: Task) -> float:
    form = sketch.fits(task)
    assert form is not None
    return float(sketch.costs(form, TARGET, 1, sketch.space(form, TARGET, 1)).min())


@pytest.mark.parametrize("task", [rows_summed(16, 1000), columns_summed(49, 2048),
                                  all_summed(512, 512), vector_by_matrix(2048, 1000),
                                  vector_by_columns(4096, 50257)])  # fmt: skip
def test_long_reductions_are_shared(task: Task) -> None:
    assert price(SKETCH, task) < price(GpuSpatialSketch(), task)


@pytest.mark.parametrize("width", [8192, 65536])
def test_large_constants_come_from_memory_once(width: int) -> None:
    """And once more through the second cache, whether or not it could hold them."""
    least = 4 * 4096 * width / TARGET.memory_gbs
    assert least < price(SKETCH, vector_by_columns(4096, width)) < 2.3 * least


def test_few_threads_wait_for_every_constant() -> None:
    """Of one thread for each of 4,096 results, four loads are under way, and 1,024 follow."""
    assert price(GpuSpatialSketch(), vector_by_columns(4096, 4096)) > 4096 / 4 * 500


def test_many_short_reductions_are_not() -> None:
    task = columns_summed(32, 1 << 16)
    assert price(SKETCH, task) > price(GpuSpatialSketch(), task)


def test_threads_follow_what_lies_side_by_side() -> None:
    assert cheapest(SKETCH, rows_summed(64, 4096))["along"] == 0
    assert cheapest(SKETCH, columns_summed(4096, 512))["along"] == 1


def fitted(task: Task) -> GpuReduce:
    form = SKETCH.fits(task)
    assert form is not None
    return form


def test_one_number_of_very_many_is_the_work_of_a_cluster() -> None:
    chosen = cheapest(SKETCH, all_summed(1024, 1024))
    assert (chosen["ranks"], chosen["threads"]) == (16, 1024)
    form = SKETCH.fits(all_summed(1024, 1024))
    assert form is not None
    assert set(SKETCH.space(form, PRESETS["cuda-sm_80"], 1)["ranks"]) == {1}
    small = all_summed(300, 512)
    kernel = lower_gpu_reduce(fitted(small), GpuReduceTiling(1024, 1024, 0, 2, 16), "k")
    check_kernel(kernel, small, make_example(small, 1))


def test_operands_of_the_end_are_read_before_the_terms() -> None:
    form = SKETCH.fits(with_residual(12, 640))
    assert form is not None
    kernel = lower_gpu_reduce(form, GpuReduceTiling(8, 64, 0, 4), "kernel")
    early, late = str(kernel.program).split("await inputs")
    assert "= bias[" in early
    assert "= b[" in early
    assert "bias[" not in late
    assert late.index("= x[") < late.index("acc[v] =")
