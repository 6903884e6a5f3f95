"""Sums that depend on remainders split into phases that compute the same values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import plan_of
from tests.targets import HOST
from whet.build.native import build
from whet.core.dtypes import f32
from whet.core.types import Array, Shape, TensorType
from whet.graph.graph import Graph, apply, make_constant, make_input
from whet.graph.interpret import interpret
from whet.graph.passes import expand_composites
from whet.ir.evaluate import evaluate
from whet.ir.expr import Expr, Read, Reduce, Select, equal, select
from whet.ir.tensor import Compute, compute, placeholder, reduce_axis, subexpressions, sum_
from whet.ops import REGISTRY
from whet.ops.base import Op
from whet.schedule.families.contraction.match import find_contraction
from whet.schedule.program.flat import flatten_stage
from whet.tasks.guards import conjuncts, is_bounds_check
from whet.tasks.phases import MAX_PHASES, Phase, join_phases, split_phases


def transposed(op: Op, x: Shape, w: Shape) -> Compute:
    (stage,) = op.compute_tensors((placeholder(x, f32, "x"), placeholder(w, f32, "w")))
    assert isinstance(stage, Compute)
    return stage


def conv_transpose(
    strides: Shape, pads: Shape, dilations: Shape, extra: Shape, groups: int = 1
) -> Op:
    return REGISTRY["conv_transpose"](strides, pads, dilations, extra, groups)


def bodies(stage: Compute) -> list[str]:
    return [str(p.stage.body) for p in split_phases(stage)]


# ------------------------------------------------------------------------------ the expressions
def test_stride_two_gives_two_plain_correlations() -> None:
    stage = transposed(conv_transpose((2,), (1, 1), (1,), (0,)), (1, 3, 4), (3, 5, 4))
    first, second = split_phases(stage)
    assert (first.starts, first.steps) == ((0, 0, 0), (1, 1, 2))
    assert (second.starts, second.steps) == ((0, 0, 1), (1, 1, 2))
    assert first.stage.shape == second.stage.shape == (1, 5, 4)
    assert str(first.stage.body) == (
        "sum(select(0 <= k0 + l - 1, x[0, c, k0 + l - 1], 0.0) * w[c, j, 3 - k0 * 2] "
        "for c in 3, k0 in 2)"
    )
    assert str(second.stage.body) == (
        "sum(select(k0 + l < 4, x[0, c, k0 + l], 0.0) * w[c, j, 2 - k0 * 2] for c in 3, k0 in 2)"
    )


def test_stride_one_is_a_correlation_with_the_reversed_kernel() -> None:
    stage = transposed(conv_transpose((1,), (1, 1), (1,), (0,)), (2, 3, 4), (3, 5, 3))
    assert bodies(stage) == [
        "sum(select(0 <= k0 + l - 1 and k0 + l - 1 < 4, x[i, c, k0 + l - 1], 0.0) "
        "* w[c, j, 2 - k0] for c in 3, k0 in 3)"
    ]


def test_phases_without_terms_are_zero() -> None:
    stage = transposed(conv_transpose((4,), (0, 0), (2,), (0,)), (1, 3, 4), (3, 5, 3))
    assert [b == "0.0" for b in bodies(stage)] == [False, True, False, True]


def test_an_input_of_one_element_leaves_one_kernel_position() -> None:
    stage = transposed(conv_transpose((1, 1), (0,) * 4, (1, 1), (0, 0)), (1, 9, 1, 1), (9, 5, 4, 4))
    assert bodies(stage) == ["sum(x[0, c, 0, 0] * w[c, j, l, m] for c in 9)"]


def test_what_surrounds_the_sum_is_kept() -> None:
    x, w, b = (placeholder((n,), f32, name) for n, name in ((4, "x"), (2, "w"), (8, "b")))
    k = reduce_axis(2, "k")

    def body(i: Expr) -> Expr:
        fits = equal((i - k) % 2, 0)
        return sum_(select(fits, x[(i - k) // 2] * w[k], 0.0), k) + b[i]

    assert bodies(compute((8,), body, "y")) == [
        "x[i] * w[0] + b[i * 2]",
        "x[i] * w[1] + b[i * 2 + 1]",
    ]


def test_a_test_that_protects_both_factors_stays_outside() -> None:
    x, w = placeholder((4,), f32, "x"), placeholder((4,), f32, "w")
    k = reduce_axis(3, "k")

    def body(i: Expr) -> Expr:
        return sum_(select(i + k < 4, x[i + k] * w[i + k] * w[k], 0.0), k)

    (phase,) = split_phases(compute((4,), body, "y"))
    arrays = {x: np.arange(4, dtype=np.float32), w: np.ones(4, np.float32)}
    (result,) = evaluate([phase.stage], arrays)
    np.testing.assert_array_equal(result, [3, 6, 5, 3])


def test_stages_without_guarded_sums_are_left_alone() -> None:
    x, w = placeholder((1, 3, 8, 8), f32, "x"), placeholder((5, 3, 3, 3), f32, "w")
    (stage,) = REGISTRY["conv"]((1, 1), (1, 1, 1, 1), (1, 1)).compute_tensors((x, w))
    assert isinstance(stage, Compute)
    (phase,) = split_phases(stage)
    assert phase.stage is stage


def test_too_many_phases_are_not_made() -> None:
    stride = MAX_PHASES + 1
    stage = transposed(conv_transpose((stride,), (0, 0), (1,), (0,)), (1, 2, 3), (2, 2, 4))
    assert len(split_phases(stage)) == 1


def test_phases_of_equally_many_terms_are_one_sum() -> None:
    stage = transposed(conv_transpose((2,), (1, 1), (1,), (0,)), (1, 3, 4), (3, 5, 4))
    joined = join_phases(stage)
    assert joined is not None
    assert (joined.starts, joined.steps, joined.along) == ((0, 0, 0), (1, 1, 1, 2), (2, 0, 1, 2))
    assert joined.stage.shape == (2, 1, 5, 4)
    assert str(joined.stage.body) == (
        "sum(select(0 <= k0 + l + r2 - 1 and k0 + l + r2 - 1 < 4, x[0, c, k0 + l + r2 - 1], 0.0) "
        "* w[c, j, 3 - k0 * 2 - r2] for c in 3, k0 in 2)"
    )


@pytest.mark.parametrize(
    ("why", "strides", "pads", "dilations", "kernel"),
    [
        ("one phase", (1,), (1, 1), (1,), 3),
        ("two terms beside one", (2,), (1, 1), (1,), 3),
        ("no terms beside one", (4,), (0, 0), (2,), 3),
        ("an odd number of results", (2,), (0, 1), (1,), 4),
        ("first terms 1, 2, 0", (3,), (1, 2), (1,), 6),
    ],
)
def test_other_phases_stay_apart(
    why: str, strides: Shape, pads: Shape, dilations: Shape, kernel: int
) -> None:
    stage = transposed(conv_transpose(strides, pads, dilations, (0,)), (1, 3, 4), (3, 5, kernel))
    assert join_phases(stage) is None, why


@pytest.mark.parametrize("seed", range(30))
def test_joined_phases_compute_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    strides = tuple(int(n) for n in rng.integers(1, 3, 2))
    kernel = tuple(s * int(n) for s, n in zip(strides, rng.integers(1, 3, 2)))
    # As long as the results are a multiple of the stride, whatever is cut off.
    cut = [
        (n, (k - s) % s + (s - n) % s) for n, k, s in zip(rng.integers(0, 3, 2), kernel, strides)
    ]
    pads = (*(int(low) for low, _ in cut), *(int(high) for _, high in cut))
    groups = int(rng.integers(1, 3))
    op = conv_transpose(strides, pads, (1, 1), (0, 0), groups)
    stage = transposed(op, (1, 2 * groups, 5, 4), (2 * groups, 3, *kernel))
    joined = join_phases(stage)
    assert (joined is None) == (strides == (1, 1))
    if joined is None:
        return
    inputs = {e.tensor for e in subexpressions(stage.body) if isinstance(e, Read)}
    arrays = {t: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}
    (expected,), (made,) = evaluate([stage], arrays), evaluate([joined.stage], arrays)
    result = np.full_like(expected, np.nan)
    _elements(result, joined, made.shape)[...] = made
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def _elements(whole: Array, phase: Phase, shape: Shape) -> Array:
    """The elements that a phase computes."""
    strides = [whole.strides[axis] * step for axis, step in zip(phase.along, phase.steps)]
    return np.lib.stride_tricks.as_strided(whole, shape, strides)


@pytest.mark.parametrize("seed", range(40))
def test_phases_compute_the_whole(seed: int) -> None:
    """Values agree to rounding, and every guard is one that a zero border can replace."""
    rng = np.random.default_rng(seed)
    sample = REGISTRY["conv_transpose"].sample(rng)
    stage = transposed(sample.op, *(t.shape for t in sample.types))
    inputs = {e.tensor for e in subexpressions(stage.body) if isinstance(e, Read)}
    arrays = {t: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}
    (expected,) = evaluate([stage], arrays)
    result = np.full_like(expected, np.nan)
    for phase in split_phases(stage):
        part = tuple(slice(start, None, step) for start, step in zip(phase.starts, phase.steps))
        (result[part],) = evaluate([phase.stage], arrays)
        for e in subexpressions(phase.stage.body):
            if isinstance(e, Select) and _has_sum(stage):
                assert isinstance(e.then, Read)
                assert all(is_bounds_check(c, e.then) for c in conjuncts(e.condition))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


# ----------------------------------------------------------------------------------- native code
CASES = {
    "1d, stride 3, dilation 2, groups": (
        conv_transpose((3,), (0, 1), (2,), (1,), 2), (2, 4, 7), (4, 3, 3)),
    "2d, stride 2, asymmetric pads, output padding": (
        conv_transpose((2, 2), (1, 0, 1, 2), (1, 1), (1, 0)), (1, 6, 5, 4), (6, 16, 3, 4)),
    "2d, stride 1": (
        conv_transpose((1, 1), (1, 1, 1, 1), (1, 1), (0, 0)), (1, 5, 6, 6), (5, 8, 3, 3)),
    "2d, kernel smaller than stride": (
        conv_transpose((3, 2), (0, 0, 0, 0), (1, 1), (0, 1)), (2, 3, 3, 4), (3, 8, 1, 2)),
    "2d, depthwise": (
        conv_transpose((2, 2), (1, 1, 1, 1), (1, 1), (0, 0), 8), (1, 8, 4, 4), (8, 1, 4, 4)),
    "2d, three channels": (
        conv_transpose((2, 2), (1, 1, 1, 1), (1, 1), (0, 0)), (1, 8, 5, 5), (8, 3, 4, 4)),
    "2d, one pixel": (
        conv_transpose((2, 2), (1, 0, 0, 1), (1, 1), (0, 0)), (1, 10, 1, 1), (10, 8, 4, 4)),
    "3d": (
        conv_transpose((1, 2, 1), (0, 1, 0, 1, 0, 0), (1, 1, 2), (0, 0, 0)), (1, 3, 3, 4, 3),
        (3, 4, 2, 3, 2)),
}  # fmt: skip


def with_epilogue(op: Op, x: Shape, w: Shape) -> Graph:
    """relu, the operator with constant weights, bias and tanh."""
    rng = np.random.default_rng(0)
    image = make_input("x", TensorType(x, f32))
    weights = make_constant(rng.standard_normal(w).astype(np.float32) * 0.2)
    (positive,) = apply(REGISTRY["relu"](), image)
    (spread,) = apply(op, positive, weights)
    shape = spread.tensor_type.shape
    bias = rng.standard_normal((1, shape[1], *(1 for _ in shape[2:]))).astype(np.float32)
    (shifted,) = apply(REGISTRY["add"](), spread, make_constant(bias))
    (result,) = apply(REGISTRY["tanh"](), shifted)
    return Graph((image,), (result,), ("y",))


@pytest.mark.parametrize("case", CASES)
def test_native_code_agrees_with_the_interpreter(case: str) -> None:
    graph = with_epilogue(*CASES[case])
    rng = np.random.default_rng(1)
    executable = build(graph, HOST, 1)
    for _ in range(2):
        x = rng.standard_normal(graph.inputs[0].tensor_type.shape).astype(np.float32)
        (result,), (expected,) = executable([x]), interpret(graph, [x])
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_each_phase_is_a_contraction_over_the_channels() -> None:
    """The layout pass gives the input its border and both values their channels last."""
    op = conv_transpose((2, 2), (1, 1, 1, 1), (1, 1), (0, 0))
    plan = plan_of(expand_composites(with_epilogue(op, (1, 16, 5, 5), (16, 24, 4, 4))))
    tasks = [s.task for s in plan.steps if _has_sum(s.task.outputs[0])]
    assert len(tasks) == 4
    for task in tasks:
        found = find_contraction(task)
        assert found is not None
        assert found.columns == 24
        assert found.depth == 4 * 16
        assert not any(isinstance(e, Select) for e in subexpressions(found.stage.body))


def test_a_choice_after_the_sum_brings_no_guards_back() -> None:
    op = conv_transpose((2,), (1, 1), (1,), (0,))
    x = make_input("x", TensorType((1, 16, 9), f32))
    w = make_constant(np.ones((16, 24, 4), np.float32))
    (spread,) = apply(op, x, w)
    (leaky,) = apply(REGISTRY["leaky_relu"](0.1), spread)
    plan = plan_of(expand_composites(Graph((x,), (leaky,), ("y",))))
    tasks = [s.task for s in plan.steps if _has_sum(s.task.outputs[0])]
    assert len(tasks) == 2
    for task in tasks:
        found = find_contraction(task)
        assert found is not None
        assert isinstance(found.a, Read)


def test_depthwise_phases_run_along_channels() -> None:
    plan = plan_of(expand_composites(with_epilogue(*CASES["2d, depthwise"])))
    tasks = [s.task for s in plan.steps if _has_sum(s.task.outputs[0])]
    assert len(tasks) == 4
    for task in tasks:
        stage = flatten_stage(task.outputs[0], task)
        assert stage.vector is not None
        assert stage.vector.extent == 8
        assert not any(isinstance(e, Select) for e in subexpressions(stage.body))


def _has_sum(stage: Compute) -> bool:
    return any(isinstance(e, Reduce) for e in subexpressions(stage.body))
