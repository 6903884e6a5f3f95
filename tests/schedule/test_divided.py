"""Contractions whose columns are divided, each range being finished and stored in its own way, or
folded, several making one result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.small_tasks import (
    arrays_for,
    check_native,
    divided,
    folded,
    make_task,
    some_rows,
)
from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.ir.expr import call
from whet.ir.program import Buffer
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.default import default_choice
from whet.schedule.families.contraction.divided import divided_holes, find_divided
from whet.schedule.families.contraction.folded import find_folded, folded_holes
from whet.schedule.families.contraction.sketch import DIVIDED, FOLDED
from whet.tasks.task import Task


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("m", "sizes", "k"),
    [(5, (16, 16), 7), (9, (64, 48, 64), 20), (1, (32, 16), 33), (14, (16, 80, 16, 32), 3)],
)
def test_every_candidate_is_right(m: int, sizes: Sequence[int], k: int, constant: bool) -> None:
    task = divided(m, sizes, k, constant=constant)
    form = find_divided(task)
    assert form is not None
    for holes in some_rows(divided_holes(form, HOST, 2), m, 16):
        kernel = DIVIDED.lower(form, holes, "divided")
        check_native(kernel, task, arrays_for(task), HOST)


@pytest.mark.parametrize(
    ("m", "n", "k", "count"), [(5, 16, 7, 2), (9, 40, 20, 2), (1, 33, 33, 4), (14, 100, 300, 3)]
)
def test_every_candidate_that_folds_is_right(m: int, n: int, k: int, count: int) -> None:
    task = folded(m, n, k, count)
    form = find_folded(task)
    assert form is not None
    for holes in some_rows(folded_holes(form, HOST, 2), m, 16):
        assert holes["nv"] % count == 0
        check_native(FOLDED.lower(form, holes, "folded"), task, arrays_for(task), HOST)


def test_they_are_the_default_of_what_they_fit() -> None:
    assert default_choice(divided(64, (64, 64), 128), HOST, threads=1).sketch is DIVIDED
    assert default_choice(folded(64, 128, 128), HOST, threads=1).sketch is FOLDED


def test_no_vector_lies_in_two_ranges() -> None:
    target = PRESETS["x86-64-v4"]
    for sizes, lanes in (((16, 32), {16}), ((24, 24), {8}), ((8, 40), {8}), ((5, 11), set())):
        form = find_divided(divided(6, sizes, 9))
        assert form is not None
        holes = divided_holes(form, target, 1)
        assert set(holes["lanes"].tolist()) <= lanes | {4, 2, 1}
        assert not any(end % n for n in holes["lanes"] for end in np.cumsum(sizes))


def test_panels_that_are_not_known_before_are_not_folded() -> None:
    task = folded(4, 16, 8)
    assert find_folded(replace(task, constants=frozenset())) is None


def unequal_columns() -> Task:
    """A result takes the first and the last columns, with others between them."""
    a, b, r = placeholder((4, 8), f32, "a"), placeholder((8, 48), f32, "b"), reduce_axis(8, "k")
    s = compute((4, 48), lambda i, j: sum_(a[i, r] * b[r, j], r), "s")
    return make_task(compute((4, 16), lambda i, j: s[i, j] * s[i, j + 32], "y"), constants=[b])


def overlapping() -> Task:
    a, b, r = placeholder((4, 8), f32, "a"), placeholder((8, 32), f32, "b"), reduce_axis(8, "k")
    s = compute((4, 32), lambda i, j: sum_(a[i, r] * b[r, j], r), "s")
    y = compute((4, 16), lambda i, j: s[i, j + 8], "y")
    return make_task(y, compute((4, 16), lambda i, j: s[i, j + 16], "z"), constants=[b])


def reversed_rows() -> Task:
    a, b, r = placeholder((4, 8), f32, "a"), placeholder((8, 32), f32, "b"), reduce_axis(8, "k")
    s = compute((4, 32), lambda i, j: sum_(a[i, r] * b[r, j], r), "s")
    y = compute((4, 16), lambda i, j: s[3 - i, j], "y")
    return make_task(y, compute((4, 16), lambda i, j: s[i, j + 16], "z"), constants=[b])


def halves_of_rows() -> Task:
    """Rows are divided, not columns."""
    a, b, r = placeholder((4, 8), f32, "a"), placeholder((8, 32), f32, "b"), reduce_axis(8, "k")
    s = compute((4, 32), lambda i, j: sum_(a[i, r] * b[r, j], r), "s")
    y = compute((2, 32), lambda i, j: call("max", s[i, j], 0.0), "y")
    return make_task(y, compute((2, 32), lambda i, j: s[i + 2, j], "z"), constants=[b])


def columns_apart() -> Task:
    """The columns of one result do not lie side by side."""
    task = divided(4, (16, 16), 8)
    first = task.outputs[0]
    return replace(
        task, buffers={**task.buffers, first: Buffer("y0", (4, 16), f32, strides=(1, 4))}
    )


@pytest.mark.parametrize(
    "task", [overlapping(), reversed_rows(), halves_of_rows(), columns_apart(), unequal_columns()]
)
def test_what_they_do_not_fit(task: Task) -> None:
    assert find_divided(task) is None
    assert find_folded(task) is None
