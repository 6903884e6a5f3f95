"""Windows along contiguous rows, read where they lie: edges, steps, dilation, pools, streams."""

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
from tests.schedule.test_staged import depthwise
from tests.targets import HOST
from whet.core.cpu import PRESETS, CpuTarget
from whet.core.dtypes import DType, f32, f64, i32
from whet.ir.tensor import compute, guarded_read, max_, placeholder, reduce_axis, sum_
from whet.schedule.default import default_choice
from whet.schedule.families.planar.lower import lower_planar
from whet.schedule.families.planar.match import Planar, PlanarTiling, find_planar
from whet.schedule.families.planar.price import planar_costs, planar_holes

SIZES = st.tuples(st.integers(1, 20), st.integers(2, 70))
EDGES = st.tuples(st.integers(0, 3), st.integers(0, 3))


def some_candidates(form: Planar, target: CpuTarget, seed: int, count: int) -> list[PlanarTiling]:
    holes = planar_holes(form, target, 2)
    assert (planar_costs(form, target, 2, holes) > 0).all()
    return [PlanarTiling(**row) for row in some_rows(holes, seed, count)]


@given(
    SIZES,
    st.sampled_from([2, 3, 5]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 1, 2]),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_convolutions(
    size: tuple[int, int],
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
    at_end: bool,
    seed: int,
) -> None:
    """On guarded memory: nothing outside of the image is touched."""
    assume(min(size) + 2 * pad > (kernel - 1) * dilation)
    task = depthwise(2, size, kernel, stride, dilation, pad)
    form = find_planar(task)
    assume(form is not None)
    assert form is not None
    for tiling in some_candidates(form, HOST, seed, 1):
        kernel_ = lower_planar(form, tiling, "k")
        check_native(kernel_, task, arrays_for(task), HOST, at_end=at_end)


@given(
    st.integers(1, 20),
    st.integers(2, 4),
    st.sampled_from([1, 2]),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_few_results_of_rows_without_padding(
    columns: int, kernel: int, stride: int, dilation: int, rest: int, seed: int
) -> None:
    """Lanes that have no result read nothing: the image ends where the last window ends."""
    width = (columns - 1) * stride + (kernel - 1) * dilation + 1 + rest
    x, w = placeholder((2, width), f32, "x"), placeholder((2, kernel), f32, "w")
    q = reduce_axis(kernel, "q")
    value = lambda i, j: sum_(x[i, j * stride + q * dilation] * w[i, q], q)
    task = make_task(compute((2, columns), value, "y"))
    form = find_planar(task)
    assume(form is not None)
    assert form is not None
    for tiling in some_candidates(form, HOST, seed, 1):
        kernel_ = lower_planar(form, tiling, "k")
        check_native(kernel_, task, arrays_for(task), HOST, at_end=True)


@given(SIZES, st.tuples(st.integers(2, 3), st.integers(2, 4)), st.sampled_from([1, 2]), EDGES,
       st.sampled_from([f32, f64]), st.booleans())  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_pools(
    shape: tuple[int, int], kernel: tuple[int, int], stride: int, pad: tuple[int, int],
    dtype: DType, at_end: bool,
) -> None:  # fmt: skip
    assume(shape[0] >= kernel[0] and shape[1] >= kernel[1])
    task = largest((3, *shape), kernel, stride, pad, dtype, channels=0)
    form = find_planar(task)
    assume(form is not None)
    assert form is not None
    for tiling in some_candidates(form, HOST, 0, 1):
        check_native(lower_planar(form, tiling, "k"), task, arrays_for(task), HOST, at_end=at_end)


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize("lanes", [8, 16])
def test_results_past_the_caches(stream: int, lanes: int) -> None:
    """Also where vectors do not begin at aligned addresses."""
    task = depthwise(3, (9, 40), 3, 1, 1, 1)
    form = find_planar(task)
    assert form is not None
    kernel = lower_planar(form, PlanarTiling(4, 1, lanes, 2, stream), "k")
    assert ("stream" in str(kernel.program)) == bool(stream)
    check_native(kernel, task, arrays_for(task), HOST)


def test_results_stream_where_no_cache_keeps_them() -> None:
    target = PRESETS["x86-64-v4"]
    for size, streams in ((16, False), (2048, True)):
        form = find_planar(depthwise(2, (size, size), 3, 1, 1, 1))
        assert form is not None
        assert ("stream" in planar_holes(form, target, 1)) == streams


@pytest.mark.parametrize("dtype", [f64, i32])
@pytest.mark.parametrize("step", [1, 2])
def test_sums_of_other_types(dtype: DType, step: int) -> None:
    x, w = placeholder((3, 11, 21), dtype, "x"), placeholder((3, 3, 3), dtype, "w")
    p, q = reduce_axis(3, "p"), reduce_axis(3, "q")
    shape = (3, -(-11 // step), -(-21 // step))
    read = lambda c, i, j: guarded_read(x, (c, i * step + p - 1, j * step + q - 1), 0)
    task = make_task(compute(shape, lambda c, i, j: sum_(read(c, i, j) * w[c, p, q], p, q), "y"))
    form = find_planar(task)
    assert form is not None
    for tiling in some_candidates(form, HOST, 0, 3):
        check_native(lower_planar(form, tiling, "k"), task, arrays_for(task), HOST)


@pytest.mark.parametrize("target", PRESETS.values(), ids=lambda t: t.name)
def test_every_target_has_candidates_that_mean_the_task(target: CpuTarget) -> None:
    """By definition, since the machine may be another one."""
    task = depthwise(1, (4, 7), 3, 2, 1, 1)
    form = find_planar(task)
    assert form is not None
    for tiling in some_candidates(form, target, 3, 2):
        check_kernel(lower_planar(form, tiling, "k"), task, arrays_for(task))


def test_rows_without_a_window_down_and_other_tensors_beside() -> None:
    """What else is read along a row has nothing behind its last element."""
    x, z, q = placeholder((5, 19), f32, "x"), placeholder((5, 19), f32, "z"), reduce_axis(3, "q")
    value = lambda i, j: max_(guarded_read(x, (i, j + q - 1), float("-inf")), q) + z[i, j]
    task = make_task(compute((5, 19), value, "y"))
    form = find_planar(task)
    assert form is not None
    assert form.staged.rows is None
    for tiling in some_candidates(form, HOST, 0, 4):
        check_native(lower_planar(form, tiling, "k"), task, arrays_for(task), HOST)


def test_what_is_no_window_or_needs_what_is_outside() -> None:
    x, q = placeholder((4, 9), f32, "x"), reduce_axis(3, "q")
    wide = compute((4, 2), lambda i, j: sum_(x[i, 3 * j + q], q), "y")
    zeros_count = compute((4, 9), lambda i, j: max_(guarded_read(x, (i, j + q - 1), 0), q), "y")
    for stage in (wide, zeros_count):
        assert find_planar(make_task(stage)) is None
    assert find_planar(depthwise(2, (20, 20), 7, 1, 1, 3)) is None


@pytest.mark.parametrize(("size", "stride"), [(112, 1), (112, 2), (56, 1)])
def test_large_planes_are_read_where_they_lie(size: int, stride: int) -> None:
    choice = default_choice(depthwise(32, (size, size), 3, stride, 1, 1), PRESETS["x86-64-v4"], 1)
    assert choice.sketch.name == "planar"
    assert choice.holes["px"] > 1
