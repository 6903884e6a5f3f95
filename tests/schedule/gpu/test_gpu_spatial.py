"""Tiles of outputs on a GPU: any task of one stage, in every shape of tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import (
    TARGET,
    cheapest,
    check_candidates,
    check_kernel,
    operator_samples,
    sample_stages,
)
from tests.schedule.small_tasks import argmax, gather, largest, make_task, matmul_relu, softmax
from tests.schedule.windows import Windows
from whet.core.dtypes import DType, bf16, bool_, f16, f32, f64, i8, i64
from whet.core.gpu import PRESETS
from whet.ir.expr import Expr, call, const
from whet.ir.program import Buffer, Let
from whet.ir.tensor import Compute, Placeholder, compute, placeholder, reduce, reduce_axis, sum_
from whet.ir.threads import AwaitInputs, LaunchNext, thread_nests
from whet.ops.base import Sample
from whet.schedule.families.gpu_spatial.lower import lower_gpu_spatial
from whet.schedule.families.gpu_spatial.match import GpuSpatialTiling
from whet.schedule.families.gpu_spatial.sketch import GpuSpatialSketch
from whet.schedule.program.triggers import NEVER
from whet.tasks.examples import make_example
from whet.tasks.task import Task

SKETCH = GpuSpatialSketch()
SAMPLES = operator_samples()


def elementwise(shape: Sequence[int], dtype: DType = f32) -> Task:
    x = placeholder(shape, dtype, "x")

    def body(*at: Expr) -> Expr:
        return call("not", x[at]) if dtype is bool_ else x[at] + const(1, dtype)

    return make_task(compute(shape, body, "y"))


def transposed(m: int, n: int) -> Task:
    x = placeholder((m, n), f32, "x")
    return make_task(compute((n, m), lambda i, j: x[j, i], "y"))


def depthwise(size: int, channels: int) -> Task:
    return Windows((size, size), channels, channels, kernel=3, pad=1, groups=channels).task


def apart(m: int, n: int) -> Task:
    """Results every other element, after a few others: nothing is contiguous."""
    x = Placeholder("x", (m, n), f32)
    y = compute((m, n), lambda i, j: x[i, j] * 2.0, "y")
    buffers = {x: Buffer("x", (m, n), f32, (1, m)), y: Buffer("y", (m, n), f32, (2 * n + 3, 2), 5)}
    return Task((y,), buffers, frozenset(), {})


TASKS: dict[str, Task] = {
    "one number": elementwise(()),
    "one of many axes": elementwise((1, 1, 1)),
    "elements": elementwise((5, 51)),
    "transposition": transposed(13, 22),
    "no neighbours": apart(5, 9),
    "product": matmul_relu(9, 12, 40),
    "gather": gather(5, 12, 6),
    "position": argmax(7, 9),
    "depthwise": depthwise(7, 12),
    "grouped": Windows((6, 6), 16, 16, kernel=3, pad=1, groups=4).task,
    "pool": largest((9, 9, 12), (3, 3), 2, (1, 1), channels=2),
    "planes": largest((2, 9, 14), (3, 3), 1, (1, 1), channels=0),
}


# ------------------------------------------------------------------------------------ meaning
@pytest.mark.parametrize("name", TASKS)
def test_candidates_mean_the_task(name: str) -> None:
    check_candidates(SKETCH, TASKS[name], count=12)


@pytest.mark.parametrize("dtype", [bool_, i8, i64, f16, bf16, f64], ids=str)
def test_any_type(dtype: DType) -> None:
    check_candidates(SKETCH, elementwise((3, 24), dtype), count=8)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"])
def test_any_reduction(kind: str) -> None:
    x = placeholder((6, 50, 10), bool_ if kind in ("any", "all") else f64, "x")
    k = reduce_axis(50, "k")
    task = make_task(compute((6, 10), lambda i, j: reduce(kind, x[i, k, j], k), "y"))
    check_candidates(SKETCH, task, count=6)


@pytest.mark.parametrize("sample", [s for _, s in SAMPLES], ids=[name for name, _ in SAMPLES])
def test_every_stage_of_every_operator(sample: Sample) -> None:
    for task in sample_stages(sample):
        check_candidates(SKETCH, task, count=2)


def test_tiles_at_the_edge_move_back() -> None:
    """Nine rows of eleven in tiles of four by four: both axes have a last tile that is short."""
    task = transposed(11, 9)
    form = SKETCH.fits(task)
    assert form is not None
    kernel = lower_gpu_spatial(form, GpuSpatialTiling(4, 4, 32), "kernel")
    check_kernel(kernel, task, make_example(task))
    assert "min(" in str(kernel.program)


# ---------------------------------------------------------------------------------- structure
@pytest.mark.parametrize(("trigger", "first"), [(0, LaunchNext), (1, AwaitInputs)])
def test_inputs_are_awaited_by_all_threads_before_anything_else(trigger: int, first: type) -> None:
    task = elementwise((77,))
    form = SKETCH.fits(task)
    assert form is not None
    kernel = lower_gpu_spatial(form, GpuSpatialTiling(1, 1, 64, trigger), "kernel")
    (nest,) = thread_nests(kernel.program)
    (position,) = nest.body
    assert isinstance(position, Let)
    kinds = [type(s) for s in position.body]
    assert kinds[0] is first
    assert kinds.index(AwaitInputs) == 1 - trigger
    assert kinds.count(LaunchNext) == 1


def test_constants_are_read_before_inputs_are_awaited() -> None:
    form = SKETCH.fits(depthwise(7, 12))
    assert form is not None
    kernel = lower_gpu_spatial(form, GpuSpatialTiling(1, 4, 32), "kernel")
    early, late = str(kernel.program).split("await inputs")
    assert "= packed0[" in early
    assert "packed0[" not in late


def test_results_that_read_memory_are_computed_before_any_is_stored() -> None:
    form = SKETCH.fits(transposed(16, 8))
    assert form is not None
    lines = str(lower_gpu_spatial(form, GpuSpatialTiling(4, 1, 32), "kernel").program).splitlines()
    assert any("made[i, v] = x[" in line for line in lines)
    assert lines[-1].endswith("= made[i, v]")


def test_several_stages_do_not_fit() -> None:
    assert SKETCH.fits(softmax(4, 9)) is None


def test_what_waits_for_memory_does_not_let_others_in() -> None:
    form = SKETCH.fits(elementwise((4096,)))
    assert form is not None
    for target in PRESETS.values():
        assert set(SKETCH.space(form, target, 1)["trigger"]) == {NEVER}


def test_program(golden: Callable[[str], None]) -> None:
    task = depthwise(6, 8)
    form = SKETCH.fits(task)
    assert form is not None
    golden(str(lower_gpu_spatial(form, GpuSpatialTiling(2, 4, 64), "kernel").program))


# -------------------------------------------------------------------------------------- prices
def test_large_element_wise_tasks_move_vectors() -> None:
    holes = cheapest(SKETCH, elementwise((1 << 22,)))
    assert holes["width"] == 4
    assert holes["threads"] in (128, 256)
    assert cheapest(SKETCH, elementwise((1 << 22,), f16))["width"] == 8


def test_threads_of_large_maps_have_several_outputs_and_those_of_small_ones_few() -> None:
    large, small = cheapest(SKETCH, depthwise(112, 96)), cheapest(SKETCH, depthwise(7, 960))
    assert large["rows"] >= 4
    assert large["width"] >= 2
    assert small["rows"] * small["width"] <= 4


def test_prices_grow_with_the_work() -> None:
    def price(task: Task) -> float:
        form = SKETCH.fits(task)
        assert form is not None
        return float(SKETCH.costs(form, TARGET, 1, SKETCH.space(form, TARGET, 1)).min())

    prices = [price(elementwise((1 << n,))) for n in range(10, 27, 4)]
    assert prices == sorted(prices)
    assert prices[0] < 2000
    assert prices[-1] > 100_000
    assert np.isfinite(prices).all()


def test_summed_rows_are_read_along_the_row() -> None:
    x, k = placeholder((4, 8), f32, "x"), reduce_axis(8, "k")
    y: Compute = compute((4,), lambda i: sum_(x[i, k], k), "y")
    check_candidates(SKETCH, make_task(y), count=4)


def test_a_table_costs_what_is_looked_up() -> None:
    def price(entries: int) -> float:
        table = placeholder((entries, 64), f32, "table")
        at = placeholder((8,), i64, "at")
        picked = compute((8, 64), lambda i, j: table[at[i], j], "picked")
        sketch = GpuSpatialSketch()
        form = sketch.fits(make_task(picked))
        assert form is not None
        return float(sketch.costs(form, TARGET, 1, sketch.space(form, TARGET, 1)).min())

    assert price(100_000) == price(100)
