"""Contractions whose result is split: which kernels there are, and what they are called with."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from tests.build.comparing import check_native
from tests.build.divided_graphs import divided_graph
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Input, Result, Value
from whet.ops.activation import Relu, Sigmoid
from whet.ops.arithmetic import Add, Mul
from whet.ops.conv import Conv
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Split
from whet.schedule.prices import AnalyticPrice
from whet.tasks.dag import Region
from whet.tasks.divisions import find_divisions
from whet.tasks.price import Price
from whet.tasks.region import Cut, cut_around, difference, plan_region, steps_seconds
from whet.tasks.segment_plan import plan_segment
from whet.tasks.steps import Step

TARGET = PRESETS["x86-64-v3"]


def price(*, together: bool = True) -> AnalyticPrice:
    """The analytic price, with kernels that were measured to be faster together, or apart."""
    return AnalyticPrice(TARGET, 1, "real", evidence=lambda one, several: together)


class Building:
    """A graph of an image, convolutions and products, step by step."""

    def __init__(self, *shape: int) -> None:
        self.b, self.rng = GraphBuilder(), np.random.default_rng(0)
        self.x = self.b.input("x", TensorType(shape, f32))

    def weights(self, *shape: int) -> Value:
        return self.b.constant(self.rng.uniform(-1, 1, shape).astype(np.float32))

    def conv(self, v: Value, columns: int, size: int = 1) -> Value:
        w = self.weights(columns, v.tensor_type.shape[1], size, size)
        return self.b.one(Conv((1, 1), (size // 2,) * 4, (1, 1), 1), v, w)

    def product(self, v: Value, columns: int) -> Value:
        return self.b.one(MatMul(), v, self.weights(v.tensor_type.shape[-1], columns))

    def split(self, v: Value, *sizes: int, axis: int = 1) -> tuple[Value, ...]:
        return self.b.results(Split(axis, sizes), v)

    def biased(self, v: Value) -> Value:
        shape = (1, v.tensor_type.shape[1], *(1,) * (v.tensor_type.rank - 2))
        return self.b.one(Add(), v, self.weights(*shape))

    def relu(self, v: Value) -> Value:
        return self.b.one(Relu(), v)

    def join(self, *parts: Value) -> Value:
        return self.b.one(Concat(1), *parts)

    def graph(self, *outputs: Value) -> Graph:
        assert isinstance(self.x, Input)
        return Graph((self.x,), outputs, tuple(f"y{n}" for n in range(len(outputs))))


def kernels(graph: Graph, asked: Price | None = None) -> list[Step]:
    """The steps that compute nodes; the graph is also built and compared with the interpreter."""
    rng = np.random.default_rng(1)
    arrays = tuple(rng.uniform(-1, 1, v.tensor_type.shape).astype(np.float32) for v in graph.inputs)
    check_native(graph, arrays, "parts")
    steps = plan_segment(graph, asked or price()).steps
    return [s for s in steps if isinstance(s, Step) and s.nodes]


def test_epilogues_of_parts_are_computed_with_the_product() -> None:
    g = Building(6, 40)
    a, b, c = g.split(g.product(g.x, 112), 48, 16, 48)
    (step,) = kernels(g.graph(g.relu(g.biased(a)), b, g.b.one(Mul(), c, g.b.one(Sigmoid(), c))))
    assert len(step.task.outputs) == 3


def test_parts_that_become_one_are_computed_with_the_product() -> None:
    g = Building(6, 40)
    a, b = g.split(g.product(g.x, 96), 48, 48)
    gate = g.b.one(Mul(), a, g.b.one(Sigmoid(), a))
    (step,) = kernels(g.graph(g.relu(g.b.one(Mul(), gate, b))))
    assert len(step.task.outputs) == 1


def test_what_is_not_faster_together_is_apart() -> None:
    g = Building(6, 40)
    a, b = g.split(g.product(g.x, 64), 48, 16)
    graph = g.graph(g.relu(a), g.relu(b))
    plan = plan_segment(graph, price(together=False))
    assert not plan.placement.divisions
    assert [len(s.task.outputs) for s in plan.others] == [2]
    assert len(plan_segment(graph, price()).others) == 3


def test_parts_without_epilogues_are_views() -> None:
    g = Building(6, 40)
    a, b = g.split(g.relu(g.product(g.x, 64)), 48, 16)
    first, second, third = kernels(g.graph(g.product(a, 8), g.product(b, 8)))
    assert [len(s.task.outputs) for s in (first, second, third)] == [1, 1, 1]


def test_parts_that_no_vector_divides_are_apart() -> None:
    g = Building(6, 40)
    a, b = g.split(g.product(g.x, 32), 13, 19)
    assert len(kernels(g.graph(g.relu(a), g.relu(b)))) == 3


def test_parts_lie_with_borders_and_beside_others() -> None:
    """Neither the part that a window slides over nor the one that is joined is copied."""
    g = Building(1, 8, 9, 9)
    a, b = g.split(g.conv(g.relu(g.conv(g.x, 24)), 48), 16, 32)
    wide = g.relu(g.conv(g.biased(b), 16, 3))
    steps = kernels(g.graph(g.conv(g.join(a, wide), 8)))
    assert [len(s.task.outputs) for s in steps] == [1, 2, 1, 1]
    divided, window = steps[1], steps[2]
    parts = [divided.storages[t] for t in divided.task.outputs]
    assert parts[0] is window.storages[window.task.outputs[0]]
    assert parts[1].geometry is not None


def test_views_have_the_border_of_what_they_are_part_of() -> None:
    g = Building(1, 8, 9, 9)
    a, b = g.split(g.relu(g.conv(g.relu(g.conv(g.x, 24)), 21)), 8, 13)
    steps = kernels(g.graph(g.conv(g.join(g.conv(a, 8, 3), g.conv(b, 8, 5)), 8)), None)
    assert len(steps) == 5
    whole = steps[1].storages[steps[1].task.outputs[0]]
    assert whole.geometry is not None
    assert whole.geometry.border == ((0, 0), (0, 0), (2, 2), (2, 2))
    assert all(whole in step.storages.values() for step in steps[2:4])


def test_a_single_row_has_its_zeros_a_row_away() -> None:
    g = Building(1, 8, 1, 9)
    a, b = g.split(g.relu(g.conv(g.relu(g.conv(g.x, 24)), 21)), 8, 13)
    assert len(kernels(g.graph(g.conv(g.join(g.conv(a, 8, 3), g.conv(b, 8, 3)), 8)))) == 5


def test_parts_that_need_each_other_are_no_cycle() -> None:
    """a needs what is computed of b, so it cannot be finished before b is stored."""
    g = Building(6, 32)
    a, b = g.split(g.product(g.x, 64), 32, 32)
    other = g.product(g.relu(b), 32)
    graph = g.graph(g.relu(g.b.one(Add(), a, other)))
    (division,) = find_divisions(graph)
    assert list(map(len, division.tails)) == [0, 1]
    assert len(kernels(graph)) == 2


def test_divisions_that_need_each_other_are_no_cycle() -> None:
    g = Building(6, 32)
    a, b = g.split(g.product(g.x, 64), 32, 32)
    c, d = g.split(g.product(g.relu(g.x), 64), 32, 32)
    graph = g.graph(g.b.one(Add(), a, g.relu(d)), g.b.one(Mul(), g.relu(b), c))
    first, second = find_divisions(graph)
    assert not set(first.nodes) & set(second.nodes)
    kernels(graph)


def test_the_caller_gets_parts_where_he_wants_them() -> None:
    g = Building(6, 40)
    a, b = g.split(g.product(g.x, 64), 48, 16)
    (step,) = kernels(g.graph(g.relu(a), b))
    assert [step.storages[t].kind for t in step.task.outputs] == ["output", "output"]


@pytest.mark.parametrize("seed", range(40))
def test_the_plan_of_a_region_with_parts_is_that_part_of_the_whole_plan(seed: int) -> None:
    rng = random.Random(seed)
    graph = divided_graph(np.random.default_rng(seed), 3)
    asked = AnalyticPrice(TARGET, 1, "real") if seed % 2 else price()
    plan = plan_segment(graph, asked)
    for _ in range(4):
        chosen = rng.sample(plan.graph.nodes, rng.randint(1, min(3, len(plan.graph.nodes))))
        cut = cut_around(plan, chosen)
        steps = plan_region(cut.region, cut.places, asked)
        assert Counter(s.key for s in steps) == Counter(s.key for s in cut.steps)


def test_a_wider_window_in_a_region_gets_a_wider_border() -> None:
    """As in the whole plan, the region's input lies within the zeros that a new reader wants."""
    g = Building(1, 8, 12, 12)
    given = g.relu(g.conv(g.relu(g.conv(g.x, 16, 3)), 16))
    before, after = (g.relu(g.conv(given, 16, size)) for size in (1, 5))
    asked = AnalyticPrice(TARGET, 1, "real")
    plans = [plan_segment(g.graph(g.relu(g.conv(v, 8))), asked) for v in (before, after)]
    assert isinstance(before, Result)
    assert isinstance(after, Result)
    region = Region((given,), (before,))
    steps = plans[0].steps_of[before.node]
    cut = Cut(region, steps, {v: plans[0].placement.places[v] for v in (given, before)})
    found = difference(cut, Region((given,), (after,)), asked)
    wanted = [steps_seconds(p.steps_of[v.node], asked) for p, v in zip(plans, (before, after))]
    assert found == pytest.approx(wanted[1] - wanted[0])


def test_new_parts_of_a_joined_value_lie_in_it() -> None:
    """As in the whole plan, what replaces a part is computed where the part was."""
    g = Building(1, 8, 12, 12)
    x = g.relu(g.conv(g.x, 16, 3))
    first, other = g.relu(g.conv(x, 16)), g.relu(g.conv(x, 32))
    graphs = []
    for part in (first, g.b.one(Sigmoid(), first)):
        g.rng = np.random.default_rng(2)
        graphs.append(g.graph(g.relu(g.conv(g.join(part, other), 8))))
    asked = AnalyticPrice(TARGET, 1, "real")
    before, after = (plan_segment(graph, asked) for graph in graphs)
    assert isinstance(first, Result)
    cut = cut_around(before, [first.node])
    joined = [v for v in cut.region.outputs if v.tensor_type.shape[1] == 48]
    assert len(joined) == 1
    rewritten = tuple(
        g.join(g.b.one(Sigmoid(), first), other) if v is joined[0] else v
        for v in cut.region.outputs
    )
    found = difference(cut, Region(cut.region.inputs, rewritten), asked)
    seconds = [steps_seconds(plan.steps, asked) for plan in (before, after)]
    assert found == pytest.approx(seconds[1] - seconds[0])
