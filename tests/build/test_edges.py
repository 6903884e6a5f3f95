"""Values at the model's edges: which stay as the caller stores them, and that results are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from tests.build.comparing import check_native, plan_of
from whet.build.tasks import graph_steps
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.types import Shape, TensorType
from whet.graph.graph import Graph, apply, make_constant, make_input
from whet.ops import REGISTRY
from whet.ops.base import Op
from whet.schedule.default import default_choice
from whet.schedule.prices import AnalyticPrice
from whet.schedule.space.registry import choices
from whet.schedule.space.sketch import Choice
from whet.tasks.layout import choose_layouts
from whet.tasks.price import Estimate
from whet.tasks.steps import Plan, Step
from whet.tasks.task import Task

TYPICAL = PRESETS["x86-64-v4"]
"""What is chosen depends on the machine, and is said here of one kind."""


def conv(strides: int, pads: Shape, dilation: int, groups: int) -> Op:
    return REGISTRY["conv"]((strides,) * 2, pads, (dilation,) * 2, groups)


def conv_transpose(stride: int, pad: int) -> Op:
    return REGISTRY["conv_transpose"]((stride,) * 2, (pad,) * 4, (1, 1), (0, 0), 1)


def weighted(op: Op, x: Shape, w: Shape) -> Graph:
    """An operator with constant weights on the model's input."""
    rng = np.random.default_rng(3)
    given = make_input("x", TensorType(x, f32))
    outputs = apply(op, given, make_constant(rng.standard_normal(w).astype(np.float32)))
    return Graph((given,), outputs, ("y",))


def check(graph: Graph) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal(graph.inputs[0].tensor_type.shape).astype(np.float32)
    check_native(graph, (x,), str(graph))


def sketches(plan: Plan) -> list[str]:
    return [default_choice(s.task, TYPICAL, 1).sketch.name for s in plan.steps
            if isinstance(s, Step)]  # fmt: skip


@given(
    st.tuples(st.integers(1, 12), st.integers(1, 40)),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2]),
    st.tuples(*[st.integers(0, 2)] * 4),
)
@settings(max_examples=25, deadline=None)
def test_depthwise_convolutions(
    size: Shape, kernel: int, stride: int, dilation: int, pads: Shape
) -> None:
    reach = (kernel - 1) * dilation
    assume(size[0] + pads[0] + pads[2] > reach)
    assume(size[1] + pads[1] + pads[3] > reach)
    op = conv(stride, pads, dilation, 3)
    check(weighted(op, (2, 3, *size), (3, 1, kernel, kernel)))


@given(
    st.tuples(st.integers(1, 6), st.integers(14, 36)),
    st.integers(1, 7),
    st.integers(2, 5),
    st.integers(1, 3),
    st.integers(0, 1),
)
@settings(max_examples=15, deadline=None)
def test_few_channels_from_long_rows(
    size: Shape, columns: int, kernel: int, stride: int, pad: int
) -> None:
    assume((min(size) - 1) * stride + kernel > 2 * pad)
    graph = weighted(conv_transpose(stride, pad), (1, 20, *size), (20, columns, kernel, kernel))
    check(graph)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_window_over_the_input_needs_no_pass_for_its_border(stride: int) -> None:
    graph = weighted(conv(stride, (1,) * 4, 1, 8), (1, 8, 30, 30), (8, 1, 3, 3))
    plan = plan_of(graph)
    assert len(plan.steps) == 1
    assert sketches(plan) == ["planar"]


def test_an_input_that_is_read_twice_keeps_its_border() -> None:
    one = weighted(conv(1, (1,) * 4, 1, 8), (1, 8, 30, 30), (8, 1, 3, 3))
    (x,), (y,) = one.inputs, one.outputs
    graph = Graph((x,), apply(REGISTRY["add"](), y, x), ("y",))
    assert x in choose_layouts(graph).border
    check(graph)


def test_three_channels_are_computed_along_the_pixels() -> None:
    graph = weighted(conv_transpose(2, 1), (1, 64, 32, 32), (64, 3, 4, 4))
    layouts = choose_layouts(graph)
    assert not layouts.inner
    assert sketches(plan_of(graph))[-4:] == ["across"] * 4


@pytest.mark.parametrize("kernel", [4, 5])
def test_phases_of_short_windows_have_filters_of_their_own(kernel: int) -> None:
    """The phases read different taps of the same weights: 2x2 of 4x4; 2 or 3 a side of 5x5."""
    graph = weighted(conv_transpose(2, 1), (1, 32, 9, 10), (32, 48, kernel, kernel))
    assert sketches(plan_of(graph)).count("winograd") == 4
    check(graph)


def between_transpositions(op: Op, x: Shape, w: Shape, back: Shape = (0, 2, 3, 1)) -> Graph:
    """An operator on channels first inside a model whose arrays have channels last."""
    rng = np.random.default_rng(5)
    given = make_input("x", TensorType(x, f32))
    (first,) = apply(REGISTRY["transpose"]((0, 3, 1, 2)), given)
    (y,) = apply(op, first, make_constant(rng.standard_normal(w).astype(np.float32)))
    (relu,) = apply(REGISTRY["relu"](), y)
    return Graph((given,), apply(REGISTRY["transpose"](back), relu), ("y",))


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_follow_the_edges(stride: int) -> None:
    op = conv(stride, (1,) * 4, 1, 20)
    graph = between_transpositions(op, (1, 9, 7, 20), (20, 1, 3, 3))
    assert set(choose_layouts(graph).inner.values()) == {1}
    assert "transposed" not in sketches(plan_of(graph))
    check(graph)


def test_edges_that_disagree_change_nothing() -> None:
    op = conv(1, (1,) * 4, 1, 20)
    graph = between_transpositions(op, (1, 9, 7, 20), (20, 1, 3, 3), (0, 1, 3, 2))
    assert not choose_layouts(graph).inner
    check(graph)


def test_tasks_know_which_inputs_are_the_callers() -> None:
    rng = np.random.default_rng(3)
    x = make_input("x", TensorType((2, 64, 56, 56), f32))
    w = make_constant(rng.standard_normal((64, 64, 1, 1)).astype(np.float32))
    (y,) = apply(conv(1, (0,) * 4, 1, 1), x, w)
    (z,) = apply(conv(1, (0,) * 4, 1, 1), y, w)
    first, second = (s.task for s in plan_of(Graph((x,), (z,), ("z",))).steps
                     if isinstance(s, Step))  # fmt: skip
    assert {t.name for t in first.given} == {"x0"}
    assert not second.given
    assert first.key != second.key
    assert first.class_key == second.class_key


def test_conversions_read_the_callers_array() -> None:
    plan = plan_of(weighted(conv(1, (1,) * 4, 1, 1), (1, 32, 8, 8), (32, 32, 3, 3)))
    copied, multiplied, left = (s.task for s in plan.steps if isinstance(s, Step))
    assert len(copied.given) == 1
    assert not multiplied.given
    assert not left.given


def planned(graph: Graph, threads: int) -> list[Step]:
    return [step for step, _ in graph_steps(graph, TYPICAL, threads, "real")[0]]


def test_many_images_are_converted_where_they_are_used() -> None:
    """Between three kernels the whole batch would leave the caches."""
    graph = weighted(conv(2, (1,) * 4, 1, 4), (16, 64, 56, 56), (128, 16, 3, 3))
    (step,) = planned(graph, 2)
    assert default_choice(step.task, TYPICAL, 2).sketch.name == "slabs"
    assert {t.name for t in step.task.given} == {"x0"}
    assert not step.task.borders


def test_one_image_is_converted_before() -> None:
    graph = weighted(conv(2, (1,) * 4, 1, 4), (1, 64, 56, 56), (128, 16, 3, 3))
    assert [bool(step.nodes) for step in planned(graph, 2)] == [False, True, False]


class Cheap:
    """Prices at which fewer kernels are always better."""

    def __call__(self, task: Task) -> Estimate:
        return Estimate(1.0, "analytic", 0.0)

    controls = True
    run = 1

    def joins(self, kinds: tuple[str, ...]) -> bool:
        return True

    def between(self, nbytes: int) -> float:
        return 0.0

    def prefers(self, together: Task, apart: Sequence[Task], nbytes: int) -> bool:
        return True


@pytest.mark.parametrize("groups", [1, 2])
def test_joined_steps_compute_the_same(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnalyticPrice, "prefers", Cheap.prefers)
    monkeypatch.setattr("whet.schedule.default.choices", _only_slabs)
    graph = weighted(conv(1, (1, 0, 2, 1), 1, groups), (3, 16, 9, 7), (24, 16 // groups, 3, 2))
    (step,) = planned(graph, 1)
    assert isinstance(step, Step)
    check(graph)


def _only_slabs(*given: Any) -> list[Choice]:
    return [c for c in choices(*given) if c.sketch.name == "slabs"]


def test_an_input_that_is_also_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined or not, both readers of the input find it."""
    one = weighted(conv(1, (1,) * 4, 1, 1), (4, 16, 9, 9), (16, 16, 3, 3))
    (x,), (y,) = one.inputs, one.outputs
    graph = Graph((x,), apply(REGISTRY["add"](), y, x), ("y",))
    check(graph)
    monkeypatch.setattr(AnalyticPrice, "prefers", Cheap.prefers)
    assert len(planned(graph, 1)) == 1
    check(graph)


def test_a_result_that_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of an output does not take its place: both are written."""
    monkeypatch.setattr(AnalyticPrice, "prefers", Cheap.prefers)
    x = make_input("x", TensorType((1, 3, 9), f32))
    fold = REGISTRY["col2im"]((8, 4), (3, 1), (2, 2), (0, 1, 0, 0), (1, 1))
    (y,) = apply(fold, x)
    check(Graph((x,), (y, y), ("y", "again")))


@pytest.mark.parametrize("order", [(2, 3, 1, 0), (1, 0, 2, 3), (0, 1, 3, 2)])
@pytest.mark.parametrize("where", ["before", "after"])
def test_views_between_a_step_and_its_conversions(
    order: Shape, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transposition is a view of the same memory, but not the value that the step knows."""
    monkeypatch.setattr(AnalyticPrice, "prefers", Cheap.prefers)
    rng = np.random.default_rng(6)
    x = make_input("x", TensorType((6, 6, 6, 6), f32))
    w = make_constant(rng.standard_normal((6, 6, 1, 3)).astype(np.float32))
    convolve = conv(1, (0,) * 4, 1, 1)
    turn = REGISTRY["transpose"](order)
    (inner,) = apply(turn, x) if where == "before" else (x,)
    (y,) = apply(REGISTRY["tanh"](), *apply(convolve, inner, w))
    outputs = apply(turn, y) if where == "after" else (y,)
    check(Graph((x,), outputs, ("y",)))
