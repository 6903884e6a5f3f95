"""The contraction sketch: any tiling means the task, and long sums are precise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.schedule.cheapest import best_tiling, best_winograd
from tests.schedule.small_tasks import arrays_for, check_native, make_task, matmul_relu
from tests.schedule.windows import Windows, relative_error
from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32, i32
from whet.ir.expr import call
from whet.ir.interpreter import run
from whet.ir.program import Loop
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.cost.lanes import LONGEST_SUM
from whet.schedule.families.contraction.lower import lower_contraction
from whet.schedule.families.contraction.match import (
    AHEAD,
    BESIDE,
    IN_PLACE,
    Tiling,
    find_contraction,
    find_turned,
)
from whet.schedule.families.contraction.price import contraction_holes, turned_holes
from whet.schedule.families.winograd.lower import lower_winograd
from whet.schedule.families.winograd.match import find_winograd
from whet.tasks.task import Task


def product(m: int, n: int, k: int) -> Task:
    """Both matrices given at run time."""
    a, b, r = placeholder((m, k), f32, "a"), placeholder((k, n), f32, "b"), reduce_axis(k, "k")
    return make_task(compute((m, n), lambda i, j: sum_(a[i, r] * b[r, j], r), "y"))


def transposed_product(m: int, n: int, k: int) -> Task:
    """The second matrix lies the other way round."""
    a, b, r = placeholder((m, k), f32, "a"), placeholder((n, k), f32, "b"), reduce_axis(k, "k")
    return make_task(compute((m, n), lambda i, j: sum_(a[i, r] * b[j, r], r), "y"))


def batched(m: int, n: int, k: int) -> Task:
    a, b, r = (
        placeholder((3, m, k), f32, "a"),
        placeholder((3, k, n), f32, "b"),
        reduce_axis(k, "k"),
    )
    y = compute((3, m, n), lambda h, i, j: call("max", sum_(a[h, i, r] * b[h, r, j], r), 0.0), "y")
    return make_task(y)


def two_reduced(m: int, n: int, k: int) -> Task:
    """Rows of a overlap, so the two reduced axes stay two loops."""
    a, w = placeholder((m + 4, k), f32, "a"), placeholder((5, k, n), f32, "w")
    q, r = reduce_axis(5, "q"), reduce_axis(k - 1, "r")
    y = compute((m, n), lambda i, j: sum_(a[i + q, r] * w[q, r, j], q, r), "y")
    return make_task(y, constants=[w])


def turned_rows(m: int, n: int, k: int) -> Task:
    """Two axes of rows, in another order than a has them, and two of terms."""
    a, b = placeholder((3, 2, k, m), f32, "a"), placeholder((k, 2, n), f32, "b")
    q, r = reduce_axis(2, "q"), reduce_axis(k, "r")
    y = compute((m, 3, n), lambda i, h, j: sum_(a[h, q, r, i] * b[r, q, j], q, r), "y")
    return make_task(y)


def strange(m: int, n: int, k: int) -> Task:
    """Each operand has the terms in another order, and b is contiguous along one of them."""
    a, b = placeholder((k, m, 3), f32, "a"), placeholder((n, 3, 2, k), f32, "b")
    q, r = reduce_axis(3, "q"), reduce_axis(k, "r")
    y = compute((2, m, n), lambda h, i, j: sum_(a[r, i, q] * b[j, q, h, r], q, r), "y")
    return make_task(y)


TASKS: dict[str, Callable[[int, int, int], Task]] = {
    f.__name__: f
    for f in (
        matmul_relu, product, transposed_product, batched, two_reduced, turned_rows, strange
    )
}  # fmt: skip


@given(
    st.sampled_from(sorted(TASKS)),
    st.tuples(st.integers(2, 20), st.integers(2, 40), st.integers(2, 30)),
    st.integers(0, 40),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_any_tiling_means_the_task(
    name: str, sizes: tuple[int, int, int], terms: int, seed: int
) -> None:
    task = TASKS[name](*sizes)
    c = find_contraction(task)
    assert c is not None
    population = contraction_holes(c, HOST, 2)
    row = np.random.default_rng(seed).integers(len(population["mr"]))
    holes = {hole: int(column[row]) for hole, column in population.items()}
    tiling = replace(Tiling(**holes), terms=terms)
    check_native(lower_contraction(c, tiling, "k"), task, arrays_for(task, seed), HOST)


@given(
    st.sampled_from(sorted(TASKS)),
    st.tuples(st.integers(8, 60), st.integers(2, 20), st.integers(2, 30)),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=40)
def test_lanes_may_run_along_the_other_factor(
    name: str, sizes: tuple[int, int, int], seed: int
) -> None:
    task = TASKS[name](*sizes)
    c = find_turned(task)
    if name == "two_reduced":
        assert c is None
        return
    assert c is not None
    assert c.is_turned
    assert c.m_axes[-1] is c.stage.vector
    population = contraction_holes(c, HOST, 2)
    row = np.random.default_rng(seed).integers(len(population["mr"]))
    tiling = Tiling(**{hole: int(column[row]) for hole, column in population.items()})
    check_native(lower_contraction(c, tiling, "k"), task, arrays_for(task, seed), HOST)


def test_lanes_stay_along_what_is_contiguous_unless_they_are_idle() -> None:
    def offered(m: int, n: int) -> int:
        c = find_turned(product(m, n, 10))
        assert c is not None
        return len(turned_holes(c, PRESETS["x86-64-v4"], 2)["mr"])

    assert offered(64, 5) > 0
    assert offered(51, 33) > 0
    assert offered(64, 64) == 0
    assert offered(33, 51) == 0


def test_rows_of_a_tile_lie_close_together() -> None:
    c = find_contraction(turned_rows(20, 40, 10))
    assert c is not None
    assert [x.extent for x in c.m_axes] == [3, 20]


@pytest.mark.parametrize(
    ("columns", "lanes"), [(33, {16, 8}), (32, {16}), (31, {16}), (40, {16, 8}), (1000, {16})]
)
def test_half_vectors_where_whole_ones_would_be_idle(columns: int, lanes: set[int]) -> None:
    c = find_contraction(product(20, columns, 10))
    assert c is not None
    assert set(contraction_holes(c, PRESETS["x86-64-v4"], 2)["lanes"].tolist()) == lanes


def test_the_last_vector_of_a_wide_panel_ends_at_the_edge() -> None:
    """20 columns are three half vectors, at 0, 8 and 12, that are read where they lie."""
    c = find_contraction(product(12, 20, 50))
    assert c is not None
    holes = contraction_holes(c, PRESETS["x86-64-v4"], 2)
    assert (holes["nv"][holes["lanes"] == 8] == 3).any()
    text = str(lower_contraction(c, Tiling(6, 3, 8, 1, 1), "k").program)
    assert "panels" not in text
    assert "min(v * 8, 12) + lane" in text


def test_panels_that_fit_are_copied_as_vectors() -> None:
    """Wider panels repeat columns, others do not even look as if they might."""
    c = find_contraction(product(12, 64, 50))
    assert c is not None
    text = str(lower_contraction(c, Tiling(6, 2, 16, 2, 2, pack_b=AHEAD), "k").program)
    copy, _, _ = text.partition("acc")
    assert "%" not in copy
    assert "//" not in copy


@given(st.integers(1, 12), st.integers(2, 12))
@settings(max_examples=20)
def test_blocks_of_a_sum_mean_the_same_by_definition(terms: int, depth: int) -> None:
    task = product(3, 8, depth)
    c = find_contraction(task)
    assert c is not None
    arrays = arrays_for(task)
    program = lower_contraction(c, Tiling(2, 1, 4, 1, 2, terms=terms), "k").program
    a, b = (arrays[t] for t in task.inputs)
    (found,) = run(program, [a.reshape(-1), b.reshape(-1)])
    np.testing.assert_allclose(found.reshape(3, 8), a @ b, rtol=1e-5, atol=1e-6)


# --------------------------------------------------------------------------------------- copies
def test_large_matrices_are_copied_where_they_are_used() -> None:
    """A copy made ahead would leave the caches before it is read."""
    c = find_contraction(product(128, 3072, 768))
    assert c is not None
    assert best_tiling(c, PRESETS["x86-64-v4"], 1)[1].pack_b == BESIDE


def test_what_is_read_once_is_not_copied() -> None:
    c = find_contraction(product(2, 3072, 768))
    assert c is not None
    assert best_tiling(c, HOST, 1)[1].pack_b == IN_PLACE


def heads(m: int, n: int, k: int) -> Task:
    """A batch along two axes that cannot be merged, because rows lie between them."""
    a, b = placeholder((2, m, 3, k), f32, "a"), placeholder((2, k, 3, n), f32, "b")
    r = reduce_axis(k, "k")
    value = lambda g, h, i, j: sum_(a[g, i, h, r] * b[g, r, h, j], r)
    return make_task(compute((2, 3, m, n), value, "y"))


def test_threads_share_all_panels_that_are_copied_ahead() -> None:
    task = heads(6, 40, 7)
    c = find_contraction(task)
    assert c is not None
    assert len(c.outer) == 2
    kernel = lower_contraction(c, Tiling(3, 2, 8, 1, 1, pack_b=AHEAD), "k")
    copy, _ = kernel.program.body
    assert isinstance(copy, Loop)
    assert copy.kind == "parallel"
    assert str(copy.extent) == str(2 * 3 * 3)  # panels of 16 columns
    check_native(kernel, task, arrays_for(task), HOST)


# ------------------------------------------------------------------------------------- precision
def test_long_sums_are_cut() -> None:
    long, short = find_contraction(product(4, 16, 1000)), find_contraction(product(4, 16, 100))
    assert long is not None
    assert short is not None
    assert set(contraction_holes(long, HOST, 1)["terms"]) == {LONGEST_SUM}
    assert set(contraction_holes(short, HOST, 1)["terms"]) == {0}


def test_exact_sums_are_not_cut() -> None:
    a, b, r = (
        placeholder((4, 999), i32, "a"),
        placeholder((999, 8), i32, "b"),
        reduce_axis(999, "k"),
    )
    c = find_contraction(make_task(compute((4, 8), lambda i, j: sum_(a[i, r] * b[r, j], r), "y")))
    assert c is not None
    assert set(contraction_holes(c, HOST, 1)["terms"]) == {0}


def test_cut_sums_are_several_times_as_precise() -> None:
    case = Windows((7, 7), 512, 32)
    c = find_contraction(case.task)
    assert c is not None
    chosen = best_tiling(c, HOST, 1)[1]
    cut, running = (
        relative_error(case.run(lower_contraction(c, t, "k"), HOST), case.expected)
        for t in (chosen, replace(chosen, terms=0))
    )
    assert cut < running / 3


@pytest.mark.parametrize("channels", [64, 128, 256])
def test_winograd_is_about_as_precise_as_blocked_direct_sums(channels: int) -> None:
    """Libraries cut direct sums at 384 terms or so; the transforms may cost a factor of two."""
    case, target = Windows((12, 12), channels, 32), PRESETS["x86-64-v3"]
    c, w = find_contraction(case.task), find_winograd(case.task)
    assert c is not None
    assert w is not None
    tiling = replace(best_tiling(c, target, 1)[1], terms=384)
    direct = case.run(lower_contraction(c, tiling, "direct"), target)
    found = best_winograd(w, target, 1)
    assert found is not None
    fast = case.run(lower_winograd(w, found[1], "fast"), target)
    errors = [float(np.abs(y - case.expected).max()) for y in (direct, fast)]
    assert errors[1] <= 2.5 * errors[0]
