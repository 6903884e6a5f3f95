"""Regions: planning is local, and a rewrite is priced by what it changes."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from tests.build.random_graphs import random_graph
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Result, Value, apply
from whet.graph.passes import expand_composites
from whet.ops import REGISTRY
from whet.schedule.prices import AnalyticPrice
from whet.tasks.dag import Region
from whet.tasks.layout import ChooseLayouts, choose_layouts, keep_rows
from whet.tasks.price import Estimate
from whet.tasks.region import (
    cut_around,
    difference,
    plan_region,
    steps_estimate,
    steps_seconds,
)
from whet.tasks.segment_plan import plan_segment
from whet.tasks.steps import Step
from whet.tasks.task import Task

TARGET = PRESETS["x86-64-v3"]


def price() -> AnalyticPrice:
    return AnalyticPrice(TARGET, 1, "real")


def blocks(count: int, batch: int = 1) -> Graph:
    """Residual blocks of convolutions, a pool and a dense layer."""
    b, rng = GraphBuilder(), np.random.default_rng(0)

    def conv(x: Value, channels: int, size: int) -> Value:
        w = rng.standard_normal((channels, x.tensor_type.shape[1], size, size))
        pad = (size // 2,) * 4
        return b.one(REGISTRY["conv"]((1, 1), pad, (1, 1)), x, b.constant(w.astype(np.float32)))

    x: Value = b.input("x", TensorType((batch, 16, 12, 12), f32))
    inputs = (x,)
    for _ in range(count):
        inner = b.one(REGISTRY["relu"](), conv(x, 16, 1))
        inner = b.one(REGISTRY["relu"](), conv(inner, 16, 3))
        x = b.one(REGISTRY["relu"](), b.one(REGISTRY["add"](), conv(inner, 16, 1), x))
    return expand_composites(Graph(inputs, (x,), ("y",)))  # type: ignore[arg-type]


@pytest.mark.parametrize("layouts", [choose_layouts, keep_rows])
@pytest.mark.parametrize("seed", range(40))
def test_the_plan_of_a_region_is_that_part_of_the_whole_plan(
    seed: int, layouts: ChooseLayouts
) -> None:
    rng = random.Random(seed)
    graph = (
        blocks(3) if seed < 8 else expand_composites(random_graph(np.random.default_rng(seed), 14))
    )
    asked = price()
    plan = plan_segment(graph, asked, layouts)
    for _ in range(4):
        chosen = rng.sample(plan.graph.nodes, rng.randint(1, min(3, len(plan.graph.nodes))))
        cut = cut_around(plan, chosen)
        steps = plan_region(cut.region, cut.places, asked, layouts)
        assert Counter(s.key for s in steps) == Counter(s.key for s in cut.steps)


def test_a_region_is_the_kernels_around_its_nodes() -> None:
    plan = plan_segment(blocks(6), price())
    middle = plan.graph.nodes[len(plan.graph.nodes) // 2]
    cut = cut_around(plan, [middle])
    assert middle in cut.region.nodes
    assert 1 < len(cut.steps) < len(plan.steps) / 2


def test_the_difference_of_a_rewrite_is_that_of_the_whole_plans() -> None:
    """A function of a sum instead of the sum, in the middle of a network."""
    graph = blocks(5)
    asked = price()
    plan = plan_segment(graph, asked)
    adds = [
        n for n in graph.nodes if n.op.name == "add" and len(n.inputs[0].tensor_type.shape) == 4
    ]
    node = adds[len(adds) // 2]
    cut = cut_around(plan, [node])
    changed = _replaced(graph.outputs, node)
    rewritten = Region(cut.region.inputs, _replaced(cut.region.outputs, node, cut.region.inputs))
    whole = plan_segment(Graph(graph.inputs, changed, graph.output_names), asked)
    expected = steps_seconds(whole.steps, asked) - steps_seconds(plan.steps, asked)
    found = difference(cut, rewritten, asked)
    assert found != 0
    assert found == pytest.approx(expected, rel=1e-6)


def test_an_unchanged_region_costs_nothing_more() -> None:
    graph, asked = blocks(3), price()
    cut = cut_around(plan_segment(graph, asked), [graph.nodes[5]])
    assert difference(cut, cut.region, asked) == 0


def test_the_estimate_of_a_plan_is_as_good_as_its_worst_part() -> None:
    plan = plan_segment(blocks(1), price())
    assert steps_estimate(plan.steps, price()).origin == "analytic"
    keys = list(dict.fromkeys(s.key for s in plan.steps if isinstance(s, Step)))

    class Mixed(AnalyticPrice):
        """The first kernel was measured, the others take a second each."""

        def __call__(self, task: Task) -> Estimate | None:
            known = task.key == keys[0]
            return Estimate(3.0, "record", 0.0) if known else Estimate(1.0, "transfer", 0.2)

    mixed = Mixed(TARGET, 1, "real")
    found = steps_estimate(plan.steps, mixed)
    assert found.seconds == steps_seconds(plan.steps, mixed)
    rest = sum(isinstance(s, Step) and s.key != keys[0] for s in plan.steps)
    assert found.origin == "transfer"
    assert found.error == pytest.approx(0.2 * rest / found.seconds)
    assert steps_estimate((), mixed) == Estimate(0.0, "record", 0.0)


def _replaced(
    outputs: tuple[Value, ...], node: object, given: tuple[Value, ...] = ()
) -> tuple[Value, ...]:
    """The outputs with `tanh` of what the node computes in its place."""
    now: dict[Value, Value] = {}

    def visit(v: Value) -> Value:
        if v in given or not isinstance(v, Result):
            return v
        if v not in now:
            made = apply(v.node.op, *(visit(x) for x in v.node.inputs))[v.index]
            now[v] = apply(REGISTRY["tanh"](), made)[0] if v.node is node else made
        return now[v]

    return tuple(visit(v) for v in outputs)
