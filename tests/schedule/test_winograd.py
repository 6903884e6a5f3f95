"""Winograd schedules: matrices, structure, kernels, precision and the choice by price."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.schedule.windows import Windows, relative_error
from whet.core.dtypes import f32
from whet.core.errors import WhetError
from whet.core.target import PRESETS, Target, detect
from whet.core.types import Array
from whet.ir.program import run
from whet.ir.tensor import Compute, compute, placeholder, reduce_axis, sum_
from whet.schedule.contraction import find_contraction
from whet.schedule.contraction_lowering import lower_contraction
from whet.schedule.default import default_kernel
from whet.schedule.kernel import Kernel, prepare_constant
from whet.schedule.model import best_tiling, contraction_holes
from whet.schedule.transforms import POINTS, TAPS, LinearPlan, linear_plan, matrices
from whet.schedule.winograd import WinogradTiling, find_winograd, lower_winograd
from whet.schedule.winograd_model import best_winograd, direct_costs, longest_sum

HOST = detect()
X86 = HOST.triple.startswith("x86_64")
NARROW = PRESETS["x86-64-v3"]
WIDE = PRESETS["x86-64-v4"]
TARGETS = [HOST, *([NARROW] if X86 and "avx2" in HOST.features else [])]


# -------------------------------------------------------------------------------------- matrices
@pytest.mark.parametrize("m", sorted(POINTS))
def test_matrices_compute_a_short_correlation(m: int) -> None:
    rng = np.random.default_rng(m)
    d, g = rng.standard_normal(m + TAPS - 1), rng.standard_normal(TAPS)
    found = matrices(m).output @ ((matrices(m).filter @ g) * (matrices(m).input @ d))
    np.testing.assert_allclose(found, [d[i : i + TAPS] @ g for i in range(m)], atol=1e-11)


def apply_plan(plan: LinearPlan, x: Array) -> Array:
    values = list(x)
    for step in plan.steps:
        values.append(sum(factor * values[n] for n, factor in step))
    return np.array([values[n] for n in plan.results])


@pytest.mark.parametrize("m", sorted(POINTS))
def test_plans_are_the_matrices(m: int) -> None:
    rng = np.random.default_rng(m)
    for matrix in (matrices(m).input, matrices(m).output):
        x = rng.standard_normal(matrix.shape[1])
        np.testing.assert_allclose(apply_plan(linear_plan(matrix), x), matrix @ x, atol=1e-11)


def test_plans_share_sums_and_skip_zeros() -> None:
    tables = matrices(4)
    assert linear_plan(tables.input).operations == 12
    assert linear_plan(tables.output).operations == 12
    assert all(factor for t in (tables.input, tables.output)
               for step in linear_plan(t).steps for _, factor in step)  # fmt: skip


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5]),
                         min_size=4, max_size=4), min_size=1, max_size=5))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_plans_of_any_matrix_without_empty_rows(rows: list[list[float]]) -> None:
    matrix = np.array([row if any(row) else [1.0, 0.0, 0.0, 0.0] for row in rows])
    x = np.array([3.0, -7.0, 11.0, 0.25])
    np.testing.assert_allclose(apply_plan(linear_plan(matrix), x), matrix @ x, atol=1e-12)


# ------------------------------------------------------------------------------------- structure
@pytest.mark.parametrize(
    ("spatial", "pairs", "shifts"), [((9,), 1, 0), ((8, 9), 2, 0), ((5, 8, 9), 2, 1)]
)
def test_windows_of_three_taps_are_found(spatial: tuple[int, ...], pairs: int, shifts: int) -> None:
    w = find_winograd(Windows(spatial, 8, 16).task)
    assert w is not None
    assert (len(w.pairs), len(w.shifts), w.channels) == (pairs, shifts, 8)
    assert {s.extent for s, _ in w.pairs} == set(spatial[-pairs:])


@pytest.mark.parametrize(
    "case",
    [
        Windows((9, 9), 8, 16, stride=2),
        Windows((9, 9), 8, 16, dilation=2, pad=2),
        Windows((9, 9), 8, 16, kernel=5, pad=2),
        Windows((9, 9), 8, 16, kernel=1, pad=0),
        Windows((9, 9), 8, 8, groups=8),
        Windows((9, 9), 8, 16, constant=False),
    ],
    ids=lambda c: ",".join(
        f"{f.name}={getattr(c, f.name)}"
        for f in dataclasses.fields(c)
        if f.default is not dataclasses.MISSING and getattr(c, f.name) != f.default
    ),
)
def test_other_windows_are_left_alone(case: Windows) -> None:
    assert find_winograd(case.task) is None


def test_what_counts_is_the_structure() -> None:
    """A sum that no operator made, with its axes in an unusual order and the factors swapped."""
    x, w = placeholder((10, 7, 8), f32, "x"), placeholder((3, 8, 16), f32, "w")
    c, k = reduce_axis(8, "c"), reduce_axis(3, "k")
    y = compute((7, 8, 16), lambda row, t, o: sum_(w[k, c, o] * x[t + k, row, c], k, c), "y")
    case = Windows((8,), 8, 16)
    task = dataclasses.replace(
        case.task, outputs=(y,), borders={}, constants=frozenset({w}),
        buffers={t: dataclasses.replace(case.task.buffers[case.w], name=t.name, shape=t.shape)
                 for t in (x, w, y)},
    )  # fmt: skip
    found = find_winograd(task)
    assert found is not None
    assert [(s.extent, k.extent) for s, k in found.pairs] == [(8, 3)]
    assert [s.extent for s in found.batch] == [7]


# --------------------------------------------------------------------------------------- kernels
CASES = {
    "whole tiles": Windows((8, 8), 16, 16),
    "ragged": Windows((7, 9), 24, 20, epilogue=True),
    "no border": Windows((7, 6), 8, 16, border=False, epilogue=True),
    "no padding": Windows((9, 11), 8, 16, pad=0),
    "batch": Windows((6, 5), 12, 24, batch=3, epilogue=True),
    "few channels": Windows((6, 6), 3, 16),
    "1-D": Windows((21,), 16, 16, batch=2, epilogue=True),
    "groups": Windows((7, 9), 12, 48, groups=2, batch=2, epilogue=True),
    "groups in 3-D": Windows((3, 6, 7), 16, 64, groups=4),
    "3-D": Windows((4, 6, 7), 8, 16, batch=2, epilogue=True),
    "3-D, no border": Windows((3, 6, 7), 8, 16, border=False),
}
TILINGS = [
    WinogradTiling(2, 4, 2, 8),
    WinogradTiling(4, 3, 1, 8, panels_per_chunk=3, prefetch=1, terms=4),
    WinogradTiling(2, 5, 1, 16, block=5),
    WinogradTiling(4, 2, 2, 8, block=3, unroll=2, prefetch=1, terms=5),
]


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda t: f"m{t.m}-block{t.block}")
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_the_convolution(name: str, tiling: WinogradTiling) -> None:
    case = CASES[name]
    w = find_winograd(case.task)
    assert w is not None
    kernel = lower_winograd(w, tiling, "kernel")
    for at_end in (True, False):
        found = case.run(kernel, HOST, at_end=at_end)
        assert relative_error(found, case.expected) < 3e-6


def test_order_of_work_does_not_change_a_bit() -> None:
    """Whole phases and blocks, tiles of all sizes: the same arithmetic on every element."""
    case = CASES["ragged"]
    w = find_winograd(case.task)
    assert w is not None
    tilings = [WinogradTiling(4, 3, 1, 8), WinogradTiling(4, 4, 2, 8, block=4, unroll=4)]
    first, second = (case.run(lower_winograd(w, t, "kernel"), HOST) for t in tilings)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("tiling", "message"),
    [
        (WinogradTiling(4, 2, 1, 8), "tiles of 4 outputs on an axis of 3"),
        (WinogradTiling(3, 2, 1, 8), "tiles of 3 outputs"),
        (WinogradTiling(2, 2, 3, 8), "panels of 24 for 16 columns"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tiling: WinogradTiling, message: str) -> None:
    w = find_winograd(Windows((3, 8), 8, 16).task)
    assert w is not None
    with pytest.raises(WhetError, match=message) as caught:
        lower_winograd(w, tiling, "kernel")
    assert caught.value.code == "WH2102"


def test_programs_mean_the_convolution() -> None:
    """The loop program by its plain definition, without code generation."""
    case = Windows((7,), 4, 6, pad=0)
    w = find_winograd(case.task)
    assert w is not None
    kernel = lower_winograd(w, WinogradTiling(2, 2, 1, 4, block=2, prefetch=1), "kernel")
    arrays = []
    for argument in kernel.arguments:
        if isinstance(argument, Compute):
            weights = prepare_constant(argument, case.task, {case.w: case.arrays[case.w]})
            arrays.append(weights)
        else:
            arrays.append(np.ascontiguousarray(case.arrays[case.x].transpose(0, 2, 1)).reshape(-1))
    given = [a.reshape(b.shape) for a, b in zip(arrays, kernel.program.inputs, strict=True)]
    (found,) = run(kernel.program, given)
    expected = case.expected.transpose(0, 2, 1).reshape(-1)
    assert relative_error(found, expected) < 1e-6


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("m", sorted(POINTS))
def test_the_error_is_at_most_twice_that_of_direct_sums(target: Target, m: int) -> None:
    case = Windows((20, 20), 64, 32)
    c, w = find_contraction(case.task), find_winograd(case.task)
    assert c is not None
    assert w is not None
    running = dataclasses.replace(best_tiling(c, target, 1)[1], terms=0)
    direct = case.run(lower_contraction(c, running, "direct"), target)
    tiling = WinogradTiling(m, 4, 2, target.lanes(32), block=8, terms=longest_sum(m, 64))
    fast = case.run(lower_winograd(w, tiling, "fast"), target)
    rms = [float(np.sqrt(np.mean((y - case.expected) ** 2))) for y in (direct, fast)]
    assert rms[1] <= 2 * rms[0]
    assert relative_error(fast, case.expected) <= 2 * relative_error(direct, case.expected)


# ------------------------------------------------------------------------------------ the choice
@pytest.mark.parametrize("target", [NARROW, WIDE], ids=lambda t: t.cpu)
@pytest.mark.parametrize(("channels", "size", "m"), [(64, 56, 4), (128, 28, 4), (512, 7, 2)])
def test_tile_sizes_follow_the_price_of_weights(
    target: Target, channels: int, size: int, m: int
) -> None:
    case = Windows((size, size), channels, channels)
    w, c = find_winograd(case.task), find_contraction(case.task)
    assert w is not None
    assert c is not None
    found = best_winograd(w, target, 1)
    assert found is not None
    assert found[1].m == m
    direct = direct_costs(c, target, 1, contraction_holes(c, target, 1))
    assert found[0] < direct.min()


def test_fast_memory_makes_larger_weights_worthwhile() -> None:
    w = find_winograd(Windows((7, 7), 512, 512).task)
    assert w is not None
    fast = NARROW.calibrated(memory_bytes_per_ns=1000.0, core_memory_bytes_per_ns=1000.0)
    found = best_winograd(w, fast, 1)
    assert found is not None
    assert found[1].m == 4


def test_short_sums_keep_their_precision() -> None:
    w = find_winograd(Windows((56, 56), 3, 64).task)
    assert w is not None
    found = best_winograd(w, NARROW, 1)
    assert found is not None
    assert found[1].m == 2


def test_images_smaller_than_a_tile_are_left_alone() -> None:
    case = Windows((3, 2), 64, 64)
    w = find_winograd(case.task)
    assert w is not None
    found = best_winograd(w, NARROW, 1)
    assert found is not None
    assert found[1].m == 2


def transforms_weights(kernel: Kernel) -> bool:
    return any(a.name == "filters" for a in kernel.arguments)


def test_the_default_schedule_uses_it_where_reals_count() -> None:
    task = Windows((28, 28), 64, 64).task
    assert transforms_weights(default_kernel(task, NARROW, 1, "k"))
    assert not transforms_weights(default_kernel(task, NARROW, 1, "k", numerics="exact"))
