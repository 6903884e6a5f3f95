"""The sketch of inner products: any tile means the task."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from tests.schedule.small_tasks import arrays_for, check_native, make_task, some_rows
from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.ir.expr import call
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.default import default_choice
from whet.schedule.families.dots.lower import lower_dots
from whet.schedule.families.dots.match import DotTiling, find_dots
from whet.schedule.families.dots.price import dot_holes
from whet.tasks.task import Task


def both_lie_along(m: int, n: int, k: int) -> Task:
    a, b, r = placeholder((m, k), f32, "a"), placeholder((n, k), f32, "b"), reduce_axis(k, "k")
    bias = placeholder((n,), f32, "bias")
    value = lambda i, j: call("max", sum_(a[i, r] * b[j, r], r) + bias[j], 0.0)
    return make_task(compute((m, n), value, "y"))


def weights(m: int, n: int, k: int) -> Task:
    """Constant columns lie another way and are stored to fit."""
    a, b, r = placeholder((m, k), f32, "a"), placeholder((k, n), f32, "b"), reduce_axis(k, "k")
    return make_task(compute((m, n), lambda i, j: sum_(a[i, r] * b[r, j], r), "y"), constants=[b])


def few_columns(m: int, n: int, k: int) -> Task:
    """Columns that are no weights are copied."""
    a, b, r = placeholder((9 * m, k), f32, "a"), placeholder((k, 2), f32, "b"), reduce_axis(k, "k")
    return make_task(compute((9 * m, 2), lambda i, j: sum_(a[i, r] * b[r, j], r), "y"))


def two_summed(m: int, n: int, k: int) -> Task:
    """A batch, and two summed axes that do not merge, because rows have gaps between them."""
    a, b = placeholder((3, m, 4, k + 1), f32, "a"), placeholder((3, n, 4, k), f32, "b")
    q, r = reduce_axis(4, "q"), reduce_axis(k, "r")
    value = lambda h, i, j: sum_(a[h, i, q, r] * b[h, j, q, r], q, r)
    return make_task(compute((3, m, n), value, "y"))


TASKS: dict[str, Callable[[int, int, int], Task]] = {
    f.__name__: f for f in (both_lie_along, weights, few_columns, two_summed)
}


@given(
    st.sampled_from(sorted(TASKS)),
    st.tuples(st.integers(2, 20), st.integers(2, 12), st.integers(16, 70)),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=50)
def test_any_tile_means_the_task(name: str, sizes: tuple[int, int, int], seed: int) -> None:
    task = TASKS[name](*sizes)
    found = find_dots(task)
    assert found is not None
    for holes in some_rows(dot_holes(found, HOST, 2), seed, 1):
        kernel = lower_dots(found, DotTiling(**holes), "k")
        check_native(kernel, task, arrays_for(task, seed), HOST)


@pytest.mark.parametrize("name", ["weights", "few_columns"])
def test_columns_that_lie_another_way_are_stored_to_fit(name: str) -> None:
    task = TASKS[name](8, 5, 32)
    found = find_dots(task)
    assert found is not None
    assert found.packed
    kernel = lower_dots(found, DotTiling(2, 2, 16, 1), "k")
    assert [b.name for b in kernel.program.workspace] == ([] if name == "weights" else ["columns"])


def test_large_columns_stay_where_they_are() -> None:
    a, b, r = placeholder((8, 32), f32, "a"), placeholder((32, 40), f32, "b"), reduce_axis(32, "k")
    y = compute((8, 40), lambda i, j: sum_(a[i, r] * b[r, j], r), "y")
    assert find_dots(make_task(y)) is None


def test_few_columns_are_inner_products() -> None:
    wide, narrow = (weights(4096, n, 256) for n in (64, 5))
    target = PRESETS["x86-64-v4"]
    assert default_choice(narrow, target, 2).sketch.name == "dots"
    assert default_choice(wide, target, 2).sketch.name == "contraction"
