"""Transposed convolutions on GPUs: one kernel for all phases where they go together."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import TARGET, check_kernel
from whet.core.cpu import PRESETS as CPU_PRESETS
from whet.core.dtypes import DType, f16, f32
from whet.core.types import Shape, TensorType
from whet.graph.graph import Graph, apply, make_constant, make_input
from whet.graph.passes import expand_composites
from whet.ops import REGISTRY
from whet.schedule.gpu_prices import GpuPrice
from whet.schedule.prices import AnalyticPrice
from whet.tasks.examples import make_example
from whet.tasks.plan import plan_graph
from whet.tasks.price import Price
from whet.tasks.steps import Step


def generator(channels: Shape, size: int, kernel: int, pad: int, dtype: DType = f32) -> Graph:
    """A transposed convolution of stride two, and what is positive of it."""
    rng = np.random.default_rng(0)
    x = make_input("x", TensorType((1, channels[0], size, size), dtype))
    weights = rng.integers(-2, 3, (*channels, kernel, kernel))
    w = make_constant(weights.astype(dtype.numpy))
    op = REGISTRY["conv_transpose"]((2, 2), (pad,) * 4, (1, 1), (0, 0), 1)
    (y,) = apply(REGISTRY["relu"](), *apply(op, x, w))
    return expand_composites(Graph((x,), (y,), ("y",)))


def steps_of(graph: Graph, price: Price) -> list[Step]:
    plan = plan_graph(graph, price, lambda dtype: not dtype.is_storage_only)
    (part,) = plan.plans.values()
    return [s for s in part.steps if isinstance(s, Step) and s.nodes]


@pytest.mark.parametrize("dtype", [f32, f16])
@pytest.mark.parametrize(
    ("channels", "size", "kernel", "pad"), [((8, 16), 5, 4, 1), ((5, 3), 4, 2, 0)]
)
def test_phases_of_equally_many_terms_are_one_kernel(
    channels: Shape, size: int, kernel: int, pad: int, dtype: DType
) -> None:
    graph = generator(channels, size, kernel, pad, dtype)
    price = GpuPrice(TARGET, "real")
    (step,) = steps_of(graph, price)
    example = make_example(step.task, 1)
    check_kernel(price.kernel(step.task, "k"), step.task, example)


def test_other_phases_have_a_kernel_each() -> None:
    price = GpuPrice(TARGET, "real")
    steps = steps_of(generator((8, 16), 5, 3, 1), price)
    assert len(steps) == 4
    for step in steps:
        example = make_example(step.task, 1)
        check_kernel(price.kernel(step.task, "k"), step.task, example)


def test_phases_stay_apart_where_no_sketch_wants_them_together() -> None:
    price = AnalyticPrice(CPU_PRESETS["x86-64-v3"], 1, "real")
    assert len(steps_of(generator((8, 16), 5, 4, 1), price)) == 4
