"""Windows over pixels that are vectors, read where they lie: edges, steps, dilation, pools."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings, strategies as st

from tests.build.guard_pages import GuardedMemory
from tests.schedule.small_tasks import (
    arrays_for,
    check_kernel,
    check_native,
    largest,
    make_task,
    some_rows,
)
from tests.schedule.windows import Windows, native, relative_error
from tests.targets import HOST
from whet.core.cpu import PRESETS, CpuTarget
from whet.core.dtypes import DType, f32, f64, i32, u8
from whet.core.types import Array, TensorType
from whet.ir.expr import Axis, Expr, select
from whet.ir.tensor import compute, guarded_read, placeholder, reduce_axis, sum_
from whet.schedule.default import default_choice
from whet.schedule.families.sliding.lower import lower_sliding
from whet.schedule.families.sliding.match import RowRange, SlidingTiling, can_align, find_sliding
from whet.schedule.families.sliding.price import sliding_costs, sliding_holes
from whet.tasks.task import Task


def some_candidates(task: Task, target: CpuTarget, seed: int, count: int) -> list[SlidingTiling]:
    form = find_sliding(task)
    assert form is not None
    holes = sliding_holes(form, target, 2)
    assert (sliding_costs(form, target, 2, holes) > 0).all()
    return [SlidingTiling(**row) for row in some_rows(holes, seed, count)]


@given(
    st.tuples(st.integers(1, 12), st.integers(2, 20)),
    st.integers(2, 40),
    st.sampled_from([1, 2]),
    st.sampled_from([2, 3, 5]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 1, 2]),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_convolutions(
    size: tuple[int, int],
    channels: int,
    batch: int,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
    border: bool,
    at_end: bool,
    seed: int,
) -> None:
    """On guarded memory: nothing outside of the image is touched."""
    assume(min(size) + 2 * pad > (kernel - 1) * dilation)
    made = Windows(size, channels, channels, batch, kernel, pad, stride, dilation, channels,
                   border, epilogue=True)  # fmt: skip
    form = find_sliding(made.task)
    assume(form is not None)
    assert form is not None
    for tiling in some_candidates(made.task, HOST, seed, 1):
        found = made.run(lower_sliding(form, tiling, "k"), HOST, at_end=at_end)
        assert relative_error(found, made.expected) < 1e-5


@given(
    st.tuples(st.integers(4, 12), st.integers(4, 12), st.integers(2, 40)),
    st.tuples(st.integers(2, 3), st.integers(2, 4)),
    st.sampled_from([1, 2]),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.sampled_from([f32, f64]),
)
@settings(max_examples=25, deadline=None)
def test_pools(
    shape: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: int,
    pad: tuple[int, int],
    dtype: DType,
) -> None:
    task = largest(shape, kernel, stride, pad, dtype, channels=2)
    form = find_sliding(task)
    assume(form is not None)
    assert form is not None
    for tiling in some_candidates(task, HOST, 0, 1):
        check_native(lower_sliding(form, tiling, "k"), task, arrays_for(task), HOST)


def test_what_stands_outside_must_not_matter() -> None:
    """Zeros beside the image can be the largest element, so none may be left out."""
    assert find_sliding(largest((9, 9, 16), (3, 3), 1, (1, 1), outside=0.0, channels=2)) is None
    assert find_sliding(largest((9, 9, 16), (3, 3), 1, (1, 1), channels=2)) is not None


@pytest.mark.parametrize("dtype", [f64, i32])
def test_sums_of_other_types(dtype: DType) -> None:
    x, p, q = placeholder((7, 9, 20), dtype, "x"), reduce_axis(3, "p"), reduce_axis(3, "q")
    task = make_task(
        compute(
            (7, 9, 20),
            lambda i, j, c: sum_(guarded_read(x, (i + p - 1, j + q - 1, c), 0), p, q),
            "y",
        )
    )
    form = find_sliding(task)
    assert form is not None
    for tiling in some_candidates(task, HOST, 0, 2):
        check_native(lower_sliding(form, tiling, "k"), task, arrays_for(task), HOST)


@pytest.mark.parametrize("target", PRESETS.values(), ids=lambda t: t.name)
def test_every_target_has_candidates_that_mean_the_task(target: CpuTarget) -> None:
    """By definition, since the machine may be another one."""
    task = largest((7, 7, 9), (3, 3), 2, (1, 1), channels=2)
    form = find_sliding(task)
    assert form is not None
    for tiling in some_candidates(task, target, 3, 2):
        check_kernel(lower_sliding(form, tiling, "k"), task, arrays_for(task))


class Shifted(GuardedMemory):
    """Arrays that begin inside of a cache line."""

    def empty(self, t: TensorType) -> Array:
        wider = super().empty(TensorType((t.nbytes + 16,), u8))
        return wider[: t.nbytes].view(t.dtype.numpy).reshape(t.shape)


@pytest.mark.parametrize("memory", [GuardedMemory, Shifted])
@pytest.mark.parametrize("whole", [0, 1])
@pytest.mark.parametrize("nv", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_panels_begin_where_lines_do(
    memory: type[GuardedMemory], whole: int, nv: int, stride: int
) -> None:
    made = Windows((7, 9), 48, 48, groups=48, stride=stride, border=False, epilogue=True)
    form = find_sliding(made.task)
    assert form is not None
    assert can_align(form, 16)
    for panels_per_step in (1,) if whole else (1, 2, 4):
        tiling = SlidingTiling(4, nv, 16, panels_per_step, whole, 1)
        kernel = lower_sliding(form, tiling, "k")
        bound = made.bind(kernel, native(kernel, HOST), memory(at_end=True))
        bound.call()
        assert relative_error(bound.result, made.expected) < 1e-5


def test_pixels_that_are_no_whole_vectors_apart_are_not_aligned() -> None:
    form = find_sliding(Windows((7, 9), 24, 24, groups=24, border=False).task)
    assert form is not None
    assert not can_align(form, 16)
    assert not sliding_holes(form, PRESETS["x86-64-v4"], 1)["align"].any()


def test_rows_that_see_the_same_taps_are_one_segment() -> None:
    form = find_sliding(Windows((14, 14), 16, 16, groups=16, border=False).task)
    assert form is not None
    assert form.row_ranges == (RowRange(0, 1, 1, 3), RowRange(1, 13, 0, 3), RowRange(13, 14, 0, 2))
    assert form.ends(7) == (1, 1)
    assert form.middle(4) == (1, 2)
    halving = find_sliding(Windows((14, 14), 16, 16, groups=16, border=False, stride=2).task)
    assert halving is not None
    assert halving.row_ranges == (RowRange(0, 1, 1, 3), RowRange(1, 7, 0, 3))
    assert halving.ends(7) == (1, 0)


def test_windows_along_one_axis() -> None:
    x, w, q = placeholder((19, 24), f32, "x"), placeholder((3, 24), f32, "w"), reduce_axis(3, "q")
    task = make_task(
        compute((19, 24), lambda j, c: sum_(guarded_read(x, (j + q - 1, c), 0) * w[q, c], q), "y")
    )
    form = find_sliding(task)
    assert form is not None
    assert form.rows is None
    for tiling in some_candidates(task, HOST, 0, 3):
        check_native(lower_sliding(form, tiling, "k"), task, arrays_for(task), HOST)


def test_what_follows_the_sum_may_choose() -> None:
    """A condition on the result is no guard of the image."""
    x, p, q = placeholder((6, 6, 16), f32, "x"), reduce_axis(3, "p"), reduce_axis(3, "q")

    def value(i: Axis, j: Axis, c: Axis) -> Expr:
        total = sum_(guarded_read(x, (i + p - 1, j + q - 1, c), 0), p, q)
        return select(total > 0.0, total, total * 0.1)

    task = make_task(compute((6, 6, 16), value, "y"))
    form = find_sliding(task)
    assert form is not None
    for tiling in some_candidates(task, HOST, 0, 2):
        check_native(lower_sliding(form, tiling, "k"), task, arrays_for(task), HOST)


def test_what_is_no_window_over_vectors() -> None:
    along_rows = Windows((9, 9), 8, 8, groups=8, border=False).task
    x, q, c = placeholder((9, 16), f32, "x"), reduce_axis(3, "q"), reduce_axis(16, "c")
    w = placeholder((16, 3), f32, "w")
    rows = compute((16, 9), lambda i, j: sum_(x[j, i] * w[i, q], q), "y")
    dense = compute((7,), lambda j: sum_(x[j + q, c] * w[c, q], c, q), "y")
    twice = compute((7, 16), lambda j, i: sum_(x[j + q, i], q) + x[j, i], "y")
    assert find_sliding(along_rows) is not None
    for stage in (rows, dense, twice):
        assert find_sliding(make_task(stage, constants=[w])) is None


@pytest.mark.parametrize("stride", [1, 2])
def test_an_image_without_a_border_is_read_where_it_lies(stride: int) -> None:
    task = Windows((28, 28), 192, 192, groups=192, border=False, stride=stride).task
    choice = default_choice(task, PRESETS["x86-64-v4"], 1)
    assert choice.sketch.name == "sliding"
    assert choice.holes["px"] > 1
