"""Winograd schedules: matrices, structure, kernels, precision and the choice by price."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from tests.schedule.cheapest import best_tiling, best_winograd
from tests.schedule.windows import Windows, relative_error
from tests.targets import HOST
from whet.core.cpu import PRESETS, CpuTarget
from whet.core.dtypes import f32
from whet.core.errors import WhetError
from whet.core.types import Array
from whet.ir.interpreter import run
from whet.ir.tensor import Compute, compute, placeholder, reduce_axis, sum_
from whet.schedule.algorithms.transforms import (
    POINTS,
    LinearPlan,
    Transform,
    linear_plan,
    matrices,
    tile_sizes,
)
from whet.schedule.default import default_kernel
from whet.schedule.families.contraction.lower import lower_contraction
from whet.schedule.families.contraction.match import find_contraction
from whet.schedule.families.contraction.price import contraction_holes, direct_costs
from whet.schedule.families.winograd.lower import lower_winograd
from whet.schedule.families.winograd.match import WinogradTiling, find_winograd
from whet.schedule.families.winograd.precision import longest_sum
from whet.schedule.program.kernel import Kernel, prepare_constant

X86 = HOST.triple.startswith("x86_64")
NARROW = PRESETS["x86-64-v3"]
WIDE = PRESETS["x86-64-v4"]
TARGETS = [HOST, *([NARROW] if X86 and "avx2" in HOST.features else [])]


# -------------------------------------------------------------------------------------- matrices
SIZES = [(n - taps + 1, taps) for n in POINTS for taps in range(2, n)]
"""Outputs and taps."""


@pytest.mark.parametrize(("m", "taps"), SIZES)
def test_matrices_compute_a_short_correlation(m: int, taps: int) -> None:
    rng, tables = np.random.default_rng(m), matrices(m, taps)
    d, g = rng.standard_normal(m + taps - 1), rng.standard_normal(taps)
    found = tables.output @ ((tables.filter @ g) * (tables.input @ d))
    np.testing.assert_allclose(found, [d[i : i + taps] @ g for i in range(m)], atol=1e-10)


def test_the_magnification_is_that_of_rounded_products() -> None:
    """A random error in every product, as large as the product, seen in the outputs."""
    rng, tables = np.random.default_rng(1), matrices(4, 3)
    d, g = rng.standard_normal((6, 4000)), rng.standard_normal((3, 4000))
    products = (tables.filter @ g) * (tables.input @ d)
    noise = tables.output @ (products * rng.standard_normal(products.shape))
    direct = np.sqrt(3)  # three products of size 1 with an error each
    assert np.sqrt(np.mean(noise**2)) / direct == pytest.approx(tables.magnification, rel=0.05)


def test_tiles_have_points_along_every_axis() -> None:
    assert tile_sizes([3]) == (2, 3, 4, 6)
    assert tile_sizes([2, 3]) == (2, 3, 4)
    assert tile_sizes([7]) == (2,)
    assert tile_sizes([9]) == ()


def apply_plan(plan: LinearPlan, x: Array) -> Array:
    values = list(x)
    for step in plan.steps:
        values.append(sum(factor * values[n] for n, factor in step))
    return np.array([values[n] for n in plan.results])


@pytest.mark.parametrize(("m", "taps"), SIZES)
def test_plans_are_the_matrices(m: int, taps: int) -> None:
    rng = np.random.default_rng(m)
    for matrix in (matrices(m, taps).input, matrices(m, taps).output):
        x = rng.standard_normal(matrix.shape[1])
        np.testing.assert_allclose(apply_plan(linear_plan(matrix), x), matrix @ x, atol=1e-10)


def test_plans_share_sums_and_skip_zeros() -> None:
    tables = matrices(4, 3)
    assert linear_plan(tables.input).operations == 12
    assert linear_plan(tables.output).operations == 12
    assert all(factor for t in (tables.input, tables.output)
               for step in linear_plan(t).steps for _, factor in step)  # fmt: skip


def test_transforms_count_the_lines_of_every_axis() -> None:
    """B^T of 3 x 2 taps: 5 columns of 6 numbers, then 6 rows of 5."""
    plans = tuple(linear_plan(matrices(4, taps).input) for taps in (3, 2))
    tile = Transform(plans)
    assert (tile.before, tile.after) == ((6, 5), (6, 5))
    assert tile.operations == 5 * plans[0].operations + 6 * plans[1].operations


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
def test_short_windows_are_found(spatial: tuple[int, ...], pairs: int, shifts: int) -> None:
    w = find_winograd(Windows(spatial, 8, 16).task)
    assert w is not None
    assert (len(w.pairs), len(w.shifts), w.channels) == (pairs, shifts, 8)
    assert {p.outputs.extent for p in w.pairs} == set(spatial[-pairs:])


@pytest.mark.parametrize(
    ("case", "steps", "shifted"),
    [
        (Windows((9, 9), 8, 16, dilation=2, pad=2), [2, 2], []),
        (Windows((40,), 8, 16, dilation=8, pad=8), [8], []),
        (Windows((9, 9), 8, 16, dilation=(1, 3), pad=3), [1, 3], []),
        (Windows((9, 17), 8, 16, stride=2, dilation=(2, 4), pad=4), [1, 2], []),
        (Windows((7, 9, 9), 8, 16, dilation=(2, 1, 2), pad=2, groups=2), [1, 2], [2]),
    ],
    ids=["2-D", "1-D", "two steps", "strides", "3-D"],
)
def test_taps_may_lie_apart(case: Windows, steps: list[int], shifted: list[int]) -> None:
    w = find_winograd(case.task)
    assert w is not None
    assert [p.step for p in w.pairs] == steps
    assert [p.step for p in w.shifts.values()] == shifted


@pytest.mark.parametrize(
    "case",
    [
        Windows((9, 9), 8, 16, stride=2),
        Windows((9, 9), 8, 16, stride=4, dilation=2, pad=2),
        Windows((5, 5), 8, 16, dilation=5, pad=5),
        Windows((9, 9), 8, 16, kernel=9, pad=4),
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


@pytest.mark.parametrize("step", [1, 2])
def test_what_counts_is_the_structure(step: int) -> None:
    """A sum that no operator made, with its axes in an unusual order and the factors swapped."""
    x, w = placeholder((12, 7, 8), f32, "x"), placeholder((3, 8, 16), f32, "w")
    c, k = reduce_axis(8, "c"), reduce_axis(3, "k")
    value = lambda row, t, o: sum_(w[k, c, o] * x[t + k * step, row, c], k, c)
    y = compute((7, 8, 16), value, "y")
    case = Windows((8,), 8, 16)
    task = dataclasses.replace(
        case.task, outputs=(y,), borders={}, constants=frozenset({w}),
        buffers={t: dataclasses.replace(case.task.buffers[case.w], name=t.name, shape=t.shape)
                 for t in (x, w, y)},
    )  # fmt: skip
    found = find_winograd(task)
    assert found is not None
    assert [(p.outputs.extent, p.taps, p.step) for p in found.pairs] == [(8, 3, step)]
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
    "two taps": Windows((7, 9), 12, 24, kernel=2, batch=2, epilogue=True),
    "two taps, no padding": Windows((7, 8), 8, 16, kernel=2, pad=0),
    "four taps": Windows((9, 7), 8, 16, kernel=4, border=False),
    "five taps": Windows((7, 9), 8, 16, kernel=5, pad=2, epilogue=True),
    "seven taps": Windows((20,), 8, 16, kernel=7, pad=3, batch=2),
    "two by three taps": Windows((6, 7), 8, 20, kernel=(2, 3)),
    "dilated": Windows((8, 8), 16, 16, dilation=2, pad=2),
    "dilated, ragged": Windows((9, 11), 12, 24, dilation=2, pad=2, batch=2, epilogue=True),
    "dilated, short phases": Windows((7, 7), 8, 16, dilation=2, pad=1, epilogue=True),
    "dilated, no border": Windows((13, 9), 8, 16, dilation=(3, 2), pad=2, border=False),
    "dilated in 1-D": Windows((37,), 8, 16, dilation=8, pad=8, batch=2, epilogue=True),
    "dilated groups in 3-D": Windows((5, 6, 7), 16, 64, dilation=2, pad=2, groups=4),
}
TILINGS = [
    WinogradTiling(2, 4, 2, 8),
    WinogradTiling(4, 3, 1, 8, panels_per_chunk=3, prefetch=1, terms=4),
    WinogradTiling(2, 5, 1, 16, block=5),
    WinogradTiling(4, 2, 2, 8, block=3, prefetch=1, terms=5),
]


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda t: f"m{t.m}-block{t.block}")
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_the_convolution(name: str, tiling: WinogradTiling) -> None:
    case = CASES[name]
    w = find_winograd(case.task)
    assert w is not None
    # The size of tiles for which there are points with so many taps.
    fitting = [m for m in tile_sizes(w.taps) if m <= tiling.m and w.fits(m)]
    tiling = dataclasses.replace(tiling, m=max(fitting))
    kernel = lower_winograd(w, tiling, "kernel")
    for at_end in (True, False):
        found = case.run(kernel, HOST, at_end=at_end)
        assert relative_error(found, case.expected) < 3e-6


@st.composite
def dilated_windows(draw: st.DrawFn) -> Windows:
    """Short phases and long ones, with and without a border, in one to three dimensions."""
    rank = draw(st.integers(1, 3))
    dilation = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    kernel = tuple(draw(st.integers(2, 4)) for _ in range(rank))
    pad = draw(st.integers(0, 3))
    reach = [d * (k - 1) for d, k in zip(dilation, kernel)]
    extents = [draw(st.integers(d + 1, 5 * d if rank < 3 else 2 * d + 3)) for d in dilation]
    groups = draw(st.sampled_from([1, 1, 2]))
    return Windows(
        tuple(max(1, e + r - 2 * pad) for e, r in zip(extents, reach)),
        4 * groups, 8 * groups, draw(st.integers(1, 2)), kernel, pad, 1, dilation, groups,
        draw(st.booleans()), draw(st.booleans()),
    )  # fmt: skip


@given(dilated_windows(), st.sampled_from([2, 3, 4, 6]), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_windows_of_any_dilation(case: Windows, m: int, block: int) -> None:
    w = find_winograd(case.task)
    assume(w is not None)
    assert w is not None
    assume(m in tile_sizes(w.taps) and w.fits(m))
    kernel = lower_winograd(w, WinogradTiling(m, 3, 1, 8, block=block), "kernel")
    for at_end in (True, False):
        found = case.run(kernel, HOST, at_end=at_end)
        assert relative_error(found, case.expected) < 2e-5


def test_order_of_work_does_not_change_a_bit() -> None:
    """Whole phases and blocks, tiles of all sizes: the same arithmetic on every element."""
    case = CASES["ragged"]
    w = find_winograd(case.task)
    assert w is not None
    tilings = [WinogradTiling(4, 3, 1, 8), WinogradTiling(4, 4, 2, 8, block=4)]
    first, second = (case.run(lower_winograd(w, t, "kernel"), HOST) for t in tilings)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("rows", "tiling", "message"),
    [
        (3, WinogradTiling(4, 2, 1, 8), "tiles of 4 outputs on an axis of 3"),
        (8, WinogradTiling(5, 2, 1, 8), "tiles of 5 outputs"),
        (8, WinogradTiling(2, 2, 3, 8), "panels of 24 for 16 columns"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(rows: int, tiling: WinogradTiling, message: str) -> None:
    w = find_winograd(Windows((rows, 8), 8, 16).task)
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


PRECISE = [
    (case, m)
    for case in (
        Windows((20, 20), 64, 32),
        Windows((20, 20), 128, 32, kernel=2, pad=0),
        Windows((20, 20), 64, 32, kernel=4),
        Windows((20, 20), 48, 32, kernel=5, pad=2),
        Windows((300,), 160, 32, kernel=7, pad=3),
    )
    for m in tile_sizes(case.taps)
    if longest_sum(m, case.taps, case.channels) is not None
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize(("case", "m"), PRECISE, ids=[f"taps{c.taps}-m{m}" for c, m in PRECISE])
def test_the_error_is_at_most_twice_that_of_direct_sums(
    case: Windows, m: int, target: CpuTarget
) -> None:
    c, w = find_contraction(case.task), find_winograd(case.task)
    assert c is not None
    assert w is not None
    running = dataclasses.replace(best_tiling(c, target, 1)[1], terms=0)
    direct = case.run(lower_contraction(c, running, "direct"), target)
    terms = longest_sum(m, w.taps, case.channels)
    assert terms is not None
    tiling = WinogradTiling(m, 4, 2, target.lanes(32), block=8, terms=terms)
    fast = case.run(lower_winograd(w, tiling, "fast"), target)
    rms = [float(np.sqrt(np.mean((y - case.expected) ** 2))) for y in (direct, fast)]
    assert rms[1] <= 2 * rms[0]
    assert relative_error(fast, case.expected) <= 2 * relative_error(direct, case.expected)


def test_sums_are_cut_where_transforms_magnify_errors() -> None:
    assert longest_sum(2, [3, 3], 256) == 128
    assert longest_sum(4, [3, 3], 64) == 0
    assert longest_sum(4, [3, 3], 128) == 32
    assert longest_sum(4, [3, 3], 256) == 16
    assert longest_sum(4, [2, 2], 256) == 64
    assert longest_sum(2, [5, 5], 128) == 16


@pytest.mark.parametrize(
    ("m", "taps", "depth"), [(4, [3, 3], 3), (6, [3, 3], 64), (2, [7, 7], 64), (2, [7], 8)]
)
def test_transforms_that_lose_too_much_are_not_offered(m: int, taps: list[int], depth: int) -> None:
    assert longest_sum(m, taps, depth) is None


# ------------------------------------------------------------------------------------ the choice
@pytest.mark.parametrize("target", [NARROW, WIDE], ids=lambda t: t.cpu)
@pytest.mark.parametrize(
    ("channels", "size", "sizes"), [(64, 56, {4}), (128, 28, {4}), (512, 7, {2, 3})]
)
def test_tile_sizes_follow_the_price_of_weights(
    target: CpuTarget, channels: int, size: int, sizes: set[int]
) -> None:
    case = Windows((size, size), channels, channels)
    w, c = find_winograd(case.task), find_contraction(case.task)
    assert w is not None
    assert c is not None
    found = best_winograd(w, target, 1)
    assert found is not None
    assert found[1].m in sizes
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
    assert found[1].m < 4


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
