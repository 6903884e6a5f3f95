"""Copies that turn what they copy give the same panels as plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.small_tasks import arrays_for, check_native, make_task
from tests.targets import HOST
from whet.core.dtypes import f32
from whet.ir.program import Program
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.families.contraction.match import BESIDE
from whet.schedule.program.transpose import tile_size
from whet.schedule.space.registry import find_sketch
from whet.tasks.task import Task


def product_with_turned(m: int, n: int, k: int) -> Task:
    """y = a @ b.T, both known only when the kernel runs."""
    a, b, r = placeholder((m, k), f32, "a"), placeholder((n, k), f32, "b"), reduce_axis(k, "k")
    return make_task(compute((m, n), lambda i, j: sum_(a[i, r] * b[j, r], r), "y"))


def turns(program: Program) -> bool:
    return "transpose turned" in str(program)


@pytest.mark.parametrize(("m", "n", "k"), [(5, 32, 64), (3, 48, 17), (7, 33, 20), (2, 64, 5)])
def test_turned_panels_are_right(m: int, n: int, k: int) -> None:
    task, target = product_with_turned(m, n, k), HOST
    sketch = find_sketch("contraction")
    form = sketch.fits(task)
    population = sketch.space(form, target, 1)
    rng = np.random.default_rng(0)
    seen = set()
    for row in rng.permutation(len(population["mr"]))[:12]:
        kernel = sketch.lower(form, {h: int(c[row]) for h, c in population.items()}, "product")
        seen.add(turns(kernel.program))
        check_native(kernel, task, arrays_for(task), target)
    assert True in seen


@pytest.mark.parametrize("k", [16, 37])
def test_panels_are_turned_where_they_are_used(k: int) -> None:
    task, target = product_with_turned(12, 40, k), HOST
    sketch = find_sketch("contraction")
    form = sketch.fits(task)
    holes = {"mr": 4, "nv": 1, "lanes": 8, "tiles_per_block": 3, "panels_per_chunk": 2,
             "pack_b": BESIDE, "prefetch": 0, "terms": 0}  # fmt: skip
    kernel = sketch.lower(form, holes, "product")
    assert turns(kernel.program)
    assert not kernel.program.workspace
    check_native(kernel, task, arrays_for(task), target)


def test_only_what_lies_along_the_depth_is_turned() -> None:
    a, b = placeholder((4, 32), f32, "a"), placeholder((32, 48), f32, "b")
    r = reduce_axis(32, "k")
    task = make_task(compute((4, 48), lambda i, j: sum_(a[i, r] * b[r, j], r), "y"))
    sketch, target = find_sketch("contraction"), HOST
    form = sketch.fits(task)
    population = sketch.space(form, target, 1)
    holes = {h: int(c[0]) for h, c in population.items()} | {"pack_b": 1}
    assert not turns(sketch.lower(form, holes, "product").program)


def test_tiles_fit_both_axes() -> None:
    assert tile_size(32, 64, 16) == 16
    assert tile_size(48, 9, 16) == 8
    assert tile_size(24, 64, 16) == 8
    assert tile_size(20, 64, 16) == 4
    assert tile_size(18, 64, 16) == 1
    assert tile_size(32, 3, 16) == 1
