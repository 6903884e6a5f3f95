"""Rows along sums are filled up with zeros, so that copies bring whole runs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import TARGET, cheapest, check_candidates, check_kernel
from whet.core.cpu import PRESETS as CPU_PRESETS
from whet.core.dtypes import DType, f16, f32
from whet.core.types import TensorType
from whet.graph.graph import Graph, Value, apply, make_constant, make_input
from whet.ir.program import walk
from whet.ir.threads import Copy
from whet.ops import REGISTRY
from whet.schedule.families.gpu_contraction.sketch import GPU_FFMA, GPU_MMA
from whet.schedule.gpu_prices import GpuPrice
from whet.schedule.prices import AnalyticPrice
from whet.tasks.examples import make_example
from whet.tasks.plan import plan_graph
from whet.tasks.price import Price
from whet.tasks.steps import Step
from whet.tasks.task import Task


def convolution(x: Value, filters: int, *, groups: int = 1, size: int = 3) -> Value:
    dtype, channels = x.tensor_type.dtype, x.tensor_type.shape[1]
    rng = np.random.default_rng(filters)
    shape = (filters, channels // groups, size, size)
    w = make_constant(rng.integers(-2, 3, shape).astype(dtype.numpy))
    op = REGISTRY["conv"]((1, 1), (size // 2,) * 4, (1, 1), groups)
    (y,) = apply(op, x, w)
    return y


def tasks_of(x: Value, y: Value, price: Price) -> list[Task]:
    plan = plan_graph(Graph((x,), (y,), ("y",)), price, lambda dtype: not dtype.is_storage_only)
    (part,) = plan.plans.values()
    return [s.task for s in part.steps if isinstance(s, Step) and s.nodes]


def image(channels: int, dtype: DType = f32) -> Value:
    return make_input("x", TensorType((1, channels, 9, 10), dtype))


def zeros_behind_channels(task: Task) -> int:
    """Of what the task reads."""
    return sum(task.borders[t][1][1] for t in task.inputs if t in task.borders)


@pytest.mark.parametrize("dtype", [f32, f16])
@pytest.mark.parametrize("size", [1, 3])
def test_channels_are_copied_in_runs(dtype: DType, size: int) -> None:
    """The image of three channels, and what the first convolution makes of it, which has 19."""
    x = image(3, dtype)
    price = GpuPrice(TARGET, "real")
    tasks = tasks_of(x, convolution(convolution(x, 19), 8, size=size), price)
    assert [zeros_behind_channels(task) for task in tasks] == [1, 1]
    sketch = GPU_FFMA if dtype is f32 else GPU_MMA
    for task in tasks:
        form = sketch.fits(task)
        assert form is not None
        kernel = sketch.lower(form, cheapest(sketch, task), "k")
        source = next(b for b in kernel.program.inputs if b.name == "x0")
        copies = [s for s in walk(kernel.program.body) if isinstance(s, Copy)]
        assert {s.elements for s in copies if s.source is source} == {4}
        check_candidates(sketch, task, 3)


@pytest.mark.parametrize("channels", [4, 5, 9])
def test_rows_that_are_whole_or_would_be_much_longer_stay(channels: int) -> None:
    x = image(8)
    _, task = tasks_of(x, convolution(convolution(x, channels), 8), GpuPrice(TARGET, "real"))
    assert zeros_behind_channels(task) == (3 if channels == 9 else 0)


def test_groups_sum_over_parts_of_rows() -> None:
    """The channels behind those of a group belong to the next one."""
    x = image(6)
    price = GpuPrice(TARGET, "real")
    (task,) = tasks_of(x, convolution(x, 8, groups=2), price)
    check_kernel(price.kernel(task, "k"), task, make_example(task, 0))


def test_other_machines_take_channels_as_they_are() -> None:
    x = image(3)
    price = AnalyticPrice(CPU_PRESETS["x86-64-v3"], 1, "real")
    (task,) = tasks_of(x, convolution(x, 8), price)
    assert zeros_behind_channels(task) == 0
