"""Windows over a copy of the rows they need: any step, dilation, border and width."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings, strategies as st

from tests.schedule.small_tasks import (
    arrays_for,
    check_kernel,
    check_native,
    largest,
    make_task,
    some_rows,
)
from tests.targets import HOST
from whet.core.cpu import PRESETS, CpuTarget
from whet.core.dtypes import DType, f32, f64
from whet.ir.expr import call
from whet.ir.tensor import Compute, compute, guarded_read, placeholder, reduce_axis, sum_
from whet.ops.conv import Conv
from whet.schedule.default import default_choice
from whet.schedule.families.staged.lower import lower_staged
from whet.schedule.families.staged.match import Staged, StagedTiling, find_staged
from whet.schedule.families.staged.price import staged_costs, staged_holes
from whet.tasks.task import Task

EDGES = st.tuples(st.integers(0, 3), st.integers(0, 3))


def depthwise(
    channels: int, size: tuple[int, int], kernel: int, stride: int, dilation: int, pad: int
) -> Task:
    """A depthwise convolution with bias and relu, channels first."""
    x = placeholder((2, channels, *size), f32, "x")
    w = placeholder((channels, 1, kernel, kernel), f32, "w")
    b = placeholder((channels,), f32, "b")
    plain = Conv((stride, stride), (pad,) * 4, (dilation, dilation), channels).compute(x, w)
    value = call("max", plain.body + b[plain.axes[1]], 0.0)
    return make_task(Compute("y", plain.axes, value), constants=[w])


def windows_of_a_sum(columns: int) -> Task:
    """Sums of two neighbours in a row of x + z, with nothing behind either."""
    x, z = placeholder((3, columns + 1), f32, "x"), placeholder((columns + 1,), f32, "z")
    q = reduce_axis(2, "q")
    return make_task(compute((3, columns), lambda i, j: sum_(x[i, j + q] + z[j + q], q), "y"))


def some_candidates(form: Staged, target: CpuTarget, seed: int, count: int) -> list[StagedTiling]:
    holes = staged_holes(form, target, 2)
    assert (staged_costs(form, target, 2, holes) > 0).all()
    return [StagedTiling(**row) for row in some_rows(holes, seed, count)]


@given(
    st.tuples(st.integers(1, 20), st.integers(2, 40)),
    st.sampled_from([2, 3, 5]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 1, 2]),
    st.integers(0, 4),
    st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_convolutions(
    size: tuple[int, int], kernel: int, stride: int, dilation: int, pad: int, seed: int
) -> None:
    assume(min(size) + 2 * pad > (kernel - 1) * dilation)
    task = depthwise(2, size, kernel, stride, dilation, pad)
    form = find_staged(task)
    assume(form is not None)
    assert form is not None
    for tiling in some_candidates(form, HOST, seed, 1):
        check_native(lower_staged(form, tiling, "k"), task, arrays_for(task), HOST)


@given(
    st.tuples(st.integers(3, 12), st.integers(4, 40)),
    st.tuples(st.integers(2, 3), st.integers(2, 4)),
    st.sampled_from([1, 2]),
    EDGES,
    st.sampled_from([f32, f64]),
)
@settings(max_examples=25, deadline=None)
def test_what_is_outside_need_not_be_zero(
    shape: tuple[int, int], kernel: tuple[int, int], stride: int, pad: tuple[int, int], dtype: DType
) -> None:
    assume(max(pad) <= HOST.lanes(dtype.bits))  # a border is written as one vector
    task = largest((3, *shape), kernel, stride, pad, dtype, channels=0)
    form = find_staged(task)
    assume(form is not None)
    assert form is not None
    for tiling in some_candidates(form, HOST, 0, 1):
        check_native(lower_staged(form, tiling, "k"), task, arrays_for(task), HOST)


@pytest.mark.parametrize("target", PRESETS.values(), ids=lambda t: t.name)
def test_every_target_has_candidates_that_mean_the_task(target: CpuTarget) -> None:
    """By definition, since the machine may be another one."""
    task = depthwise(1, (4, 7), 3, 2, 1, 1)
    form = find_staged(task)
    assert form is not None
    for tiling in some_candidates(form, target, 3, 2):
        check_kernel(lower_staged(form, tiling, "k"), task, arrays_for(task))


def test_rows_without_a_window_down() -> None:
    x, q = placeholder((5, 19), f32, "x"), reduce_axis(3, "q")
    task = make_task(
        compute((5, 19), lambda i, j: sum_(guarded_read(x, (i, j + q - 1), 0), q), "y")
    )
    form = find_staged(task)
    assert form is not None
    assert form.rows is None
    for tiling in some_candidates(form, HOST, 0, 3):
        check_native(lower_staged(form, tiling, "k"), task, arrays_for(task), HOST)


@pytest.mark.parametrize("columns", [2, 5, 11])
def test_other_tensors_in_few_windows(columns: int) -> None:
    """Only the image is copied: lanes that have no result read nothing of the others."""
    task = windows_of_a_sum(columns)
    form = find_staged(task)
    assert form is not None
    for tiling in some_candidates(form, PRESETS["x86-64-v4"], 0, 12):
        check_kernel(lower_staged(form, tiling, "k"), task, arrays_for(task))
    check_native(lower_staged(form, tiling, "k"), task, arrays_for(task), HOST)


def test_what_is_no_window() -> None:
    x, w, c, q = (placeholder((4, 9), f32, "x"), placeholder((4, 3), f32, "w"),
                  reduce_axis(4, "c"), reduce_axis(3, "q"))  # fmt: skip
    dense = compute((9,), lambda j: sum_(guarded_read(x, (c, j + q - 1), 0) * w[c, q], c, q), "y")
    twice = compute((4, 9), lambda i, j: sum_(guarded_read(x, (i, j + q - 1), 0), q) + x[i, j], "y")
    wide = compute((4, 2), lambda i, j: sum_(x[i, 3 * j + q], q), "y")
    for stage in (dense, twice, wide):
        assert find_staged(make_task(stage, constants=[w])) is None


@pytest.mark.parametrize("stride", [1, 2])
def test_an_image_without_a_border_is_copied_by_rows(stride: int) -> None:
    """Under windows too large for code of their own at every edge."""
    task = depthwise(32, (56, 56), 7, stride, 1, 3)
    choice = default_choice(task, PRESETS["x86-64-v4"], 1)
    assert choice.sketch.name == "staged"
    assert choice.holes["px"] > 1


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("px", "rows"), [(1, 2), (2, 5), (4, 11), (3, 6)])
def test_blocks_copied_tile_by_tile(stride: int, px: int, rows: int) -> None:
    """Also where the last tile of a block, or the last block, is moved back."""
    task = depthwise(3, (22, 21), 3, stride, 1, 1)
    form = find_staged(task)
    assert form is not None
    kernel = lower_staged(form, StagedTiling(px, 1, 8, rows, 4, ahead=2), "k")
    check_native(kernel, task, arrays_for(task), HOST)
