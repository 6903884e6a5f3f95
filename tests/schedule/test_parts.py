"""Reductions in parts, and rows that are swept: every candidate means the task."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from tests.schedule.small_tasks import arrays_for, check_native, make_task, some_rows
from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.ir.expr import Read, call
from whet.ir.tensor import compute, max_, placeholder, reduce_axis, subexpressions, sum_
from whet.schedule.algorithms.parts import SHORTEST_PART, numbers_of_parts, reduced_order
from whet.schedule.default import default_choice
from whet.schedule.families.parts.sketch import InParts
from whet.schedule.program.primitives.accesses import stores_in
from whet.schedule.space.registry import SKETCHES
from whet.tasks.task import Task


def vector_by_matrix(k: int, n: int) -> Task:
    x, a, r = placeholder((k,), f32, "x"), placeholder((k, n), f32, "a"), reduce_axis(k, "k")
    bias = placeholder((n,), f32, "bias")
    y = compute((n,), lambda i: call("max", sum_(a[r, i] * x[r], r) + bias[i], 0.0), "y")
    return make_task(y)


def one_number(k: int, n: int) -> Task:
    a, b = placeholder((k, n), f32, "a"), placeholder((k, n), f32, "b")
    r, s = reduce_axis(k, "r"), reduce_axis(n, "s")
    return make_task(compute((), lambda: sum_(a[r, s] * b[r, s], r, s), "y"))


def two_outer_axes(k: int, n: int) -> Task:
    """Merged where they are swept; parts are all of the first axis and pieces of the second."""
    a, r, s = placeholder((8, k, n), f32, "a"), reduce_axis(8, "r"), reduce_axis(k, "s")
    return make_task(compute((n,), lambda i: sum_(a[r, s, i] * a[r, s, i], r, s), "y"))


def largest(k: int, n: int) -> Task:
    """Not a sum, and results in another order than what they are read from."""
    a, r = placeholder((3, k, n), f32, "a"), reduce_axis(k, "r")
    return make_task(compute((n, 3), lambda i, h: max_(a[h, r, i], r) * 0.5, "y"))


def deep_product(k: int, n: int) -> Task:
    a, b, r = placeholder((k, 5), f32, "a"), placeholder((k, n), f32, "b"), reduce_axis(k, "k")
    w = placeholder((5, n), f32, "w")
    y = compute((5, n), lambda i, j: sum_(a[r, i] * b[r, j], r) * w[i, j], "y")
    return make_task(y, constants=[w])


TASKS: dict[str, Callable[[int, int], Task]] = {
    f.__name__: f for f in (vector_by_matrix, one_number, two_outer_axes, largest, deep_product)
}
SKETCHES_IN_PARTS = sorted(n for n, s in SKETCHES.items() if isinstance(s, InParts))


@given(
    st.sampled_from(sorted(TASKS)),
    st.sampled_from(["sweeps", *SKETCHES_IN_PARTS]),
    st.tuples(st.sampled_from([256, 300, 385]), st.integers(64, 90)),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_any_candidate_means_the_task(
    name: str, sketch: str, sizes: tuple[int, int], seed: int
) -> None:
    task, made = TASKS[name](*sizes), SKETCHES[sketch]
    form = made.fits(task)
    population = {} if form is None else made.space(form, HOST, 2)
    if not population or not len(next(iter(population.values()))):
        return  # the inner sketch is made for something else
    for holes in some_rows(population, seed, 1):
        check_native(made.lower(form, holes, "k"), task, arrays_for(task, seed), HOST)


def test_every_reduction_can_be_made_in_parts_by_some_sketch() -> None:
    for name, task in TASKS.items():
        fitting = [s for s in SKETCHES_IN_PARTS if SKETCHES[s].fits(task(300, 80)) is not None]
        assert fitting, name


def test_parts_are_equally_long_pieces_of_memory() -> None:
    task = two_outer_axes(300, 80)
    order = reduced_order(task)
    assert order is not None
    assert [a.extent for a in order] == [8, 300]
    numbers = numbers_of_parts(task, order)
    assert {2, 4, 8} <= set(numbers)
    for parts in numbers:
        assert 2400 % parts == 0
        assert 2400 // parts >= SHORTEST_PART
        assert parts <= 8 or parts % 8 == 0


@pytest.mark.parametrize("name", sorted(TASKS))
def test_results_of_parts_are_written_once_and_added_up_elsewhere(name: str) -> None:
    """Threads would otherwise fight over the cache lines in which their parts meet."""
    task, seen = TASKS[name](300, 80), 0
    for sketch in (SKETCHES[s] for s in SKETCHES_IN_PARTS):
        assert isinstance(sketch, InParts)
        form = sketch.fits(task)
        population = {} if form is None else sketch.space(form, HOST, 2)
        if form is None or not len(population["parts"]):
            continue
        for holes in some_rows(population, 0, 5):
            inner = form.cut(holes["parts"]).form
            inside = {n: x for n, x in holes.items() if n not in ("parts", "shared")}
            program = sketch.inner.lower(inner, inside, "k").program
            stores = stores_in(program.body)
            assert any(s.buffer in program.outputs for s in stores)
            reads = [e for s in stores for e in subexpressions(s.value) if isinstance(e, Read)]
            assert not any(r.tensor in program.outputs for r in reads)
            seen += 1
    assert seen


@pytest.mark.parametrize(("k", "n"), [(100, 80), (256, 20000)])
def test_short_reductions_and_many_results_stay_whole(k: int, n: int) -> None:
    assert reduced_order(vector_by_matrix(k, n)) is None


def test_a_row_that_serves_several_terms_is_not_swept() -> None:
    x, r = placeholder((64, 100), f32, "x"), reduce_axis(64, "r")
    s = reduce_axis(20, "s")
    y = compute((100,), lambda i: sum_(x[r, i], r, s), "y")
    assert SKETCHES["sweeps"].fits(make_task(y)) is None


def test_threads_share_a_single_number() -> None:
    choice = default_choice(one_number(1000, 1000), PRESETS["x86-64-v4"], 2)
    assert choice.sketch.name == "parts of rows"
    assert choice.holes["parts"] >= 2


def test_what_lies_far_apart_is_swept() -> None:
    choice = default_choice(vector_by_matrix(1024, 1024), PRESETS["x86-64-v4"], 2)
    assert choice.sketch.name == "parts of sweeps"
