"""The least time of a task: which operations and bytes count."""

from __future__ import annotations

import pytest

from tests.schedule.small_tasks import make_task
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.ir.expr import call, select
from whet.ir.tensor import compute, max_, placeholder, reduce_axis, sum_
from whet.tune.roofline import arithmetic, roofline_seconds

TARGET = PRESETS["x86-64-v4"]


def test_a_term_of_a_product_is_a_multiply_add() -> None:
    a, b, k = placeholder((6, 8), f32, "a"), placeholder((8, 9), f32, "b"), reduce_axis(8, "k")
    task = make_task(compute((6, 9), lambda i, j: sum_(a[i, k] * b[k, j], k), "y"))
    assert arithmetic(task) == 2 * 6 * 9 * 8


def test_epilogues_count() -> None:
    a, b, k = placeholder((6, 8), f32, "a"), placeholder((8, 9), f32, "b"), reduce_axis(8, "k")
    c = placeholder((9,), f32, "c")
    value = lambda i, j: call("max", sum_(a[i, k] * b[k, j], k) * 0.5 + c[j], 0.0)
    assert arithmetic(make_task(compute((6, 9), value, "y"))) == 2 * 6 * 9 * (8 + 1 + 1)


def test_what_is_no_multiply_add_takes_the_place_of_one() -> None:
    a, b = placeholder((6,), f32, "a"), placeholder((9,), f32, "b")
    product = make_task(compute((6, 9), lambda i, j: a[i] * b[j], "y"))
    assert arithmetic(product) == 2 * 6 * 9
    x, k = placeholder((6, 8), f32, "x"), reduce_axis(8, "k")
    largest = make_task(compute((6,), lambda i: max_(x[i, k] * 2.0, k), "y"))
    assert arithmetic(largest) == 2 * 6 * 8 * 2


def test_finding_an_element_is_free() -> None:
    x = placeholder((8, 8), f32, "x")
    padded = compute((8, 10), lambda i, j: select(j < 8, x[i, call("min", j, 7)], 0.0), "y")
    assert arithmetic(make_task(padded)) == 0


def test_the_slower_of_arithmetic_and_transport_counts() -> None:
    a, b = placeholder((64,), f32, "a"), placeholder((64,), f32, "b")
    task = make_task(compute((64, 64), lambda i, j: a[i] * b[j], "y"))
    moved = TARGET.roofline(0.0, 4 * (64 + 64 + 64 * 64), 1)
    assert roofline_seconds(task, TARGET, 1) == moved
    often = make_task(
        compute((64, 64), lambda i, j: call("exp", call("exp", a[i] * b[j]) + a[i]) * b[j], "y")
    )
    per_ns = 2 * 16 * TARGET.constant("fma_per_ns_512")
    assert roofline_seconds(often, TARGET, 1) == pytest.approx(
        max(moved, 1e-9 * 2 * 5 * 64 * 64 / per_ns)
    )
