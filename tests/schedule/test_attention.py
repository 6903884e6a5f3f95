"""Products whose rows go through stages: every way to cut them means the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.small_tasks import arrays_for, check_native, make_task
from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.ir.expr import Expr, call
from whet.ir.program import Allocate, Loop, Program, Stmt
from whet.ir.tensor import compute, max_, placeholder, reduce_axis, sum_
from whet.schedule.families.attention.lower import lower_attention
from whet.schedule.families.attention.match import (
    Attention,
    AttentionTiling,
    find_attention,
    rows_together,
)
from whet.schedule.families.attention.price import attention_costs, attention_holes
from whet.tasks.task import Task


def attention(
    heads: int, rows: int, columns: int, depth: int, width: int = 0, *, turned: bool = True
) -> Task:
    """softmax(q k), and perhaps times v; k lies by columns (`turned`) or by depth."""
    q = placeholder((rows, heads, depth), f32, "q")
    keys = (columns, heads, depth) if turned else (heads, depth, columns)
    k, d = placeholder(keys, f32, "k"), reduce_axis(depth, "d")
    m, n = reduce_axis(columns, "m"), reduce_axis(columns, "n")
    scores = compute(
        (heads, rows, columns),
        lambda h, i, j: sum_(q[i, h, d] * (k[j, h, d] if turned else k[h, d, j]), d) * 0.5,
        "scores",
    )
    peak = compute((heads, rows, 1), lambda h, i, _: max_(scores[h, i, m], m), "peak")
    e = compute(
        (heads, rows, columns), lambda h, i, j: call("exp", scores[h, i, j] - peak[h, i, 0]), "e"
    )
    total = compute((heads, rows, 1), lambda h, i, _: sum_(e[h, i, n], n), "total")
    if not width:
        return make_task(
            compute((heads, rows, columns), lambda h, i, j: e[h, i, j] / total[h, i, 0], "y")
        )
    v, c = placeholder((columns, heads, width), f32, "v"), reduce_axis(columns, "c")
    return make_task(
        compute(
            (heads, rows, width),
            lambda h, i, j: sum_(e[h, i, c] / total[h, i, 0] * v[c, h, j], c),
            "y",
        )
    )


def found(task: Task) -> Attention:
    form = find_attention(task)
    assert form is not None
    return form


SHAPES = [
    (2, 5, 24, 8), (1, 37, 40, 20), (3, 16, 16, 16), (2, 19, 33, 7), (1, 4, 700, 5), (2, 40, 64, 4),
]  # fmt: skip


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("width", [0, 16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_way_to_cut_means_the_task(
    shape: tuple[int, int, int, int], width: int, turned: bool
) -> None:
    task = attention(*shape, width, turned=turned)
    form = found(task)
    holes = attention_holes(form, HOST, 2)
    rng = np.random.default_rng(0)
    count = len(holes["mr"])
    at_once = np.flatnonzero(holes["block"] == shape[1])
    whole = np.flatnonzero(holes["whole"] == 1)
    assert len(whole) > 0 or shape[2] > (HOST.vector_registers - 1) * HOST.lanes(32)
    picked = rng.choice(whole, 2) if len(whole) else ()
    for row in (*rng.integers(0, count, 2), *rng.choice(at_once, 2), *picked):
        tiling = AttentionTiling(**{name: int(column[row]) for name, column in holes.items()})
        check_native(lower_attention(form, tiling, "k"), task, arrays_for(task), HOST)


def test_rows_that_go_together_fit_in_the_first_cache() -> None:
    assert rows_together(found(attention(1, 128, 128, 8)), 128) == 16
    assert rows_together(found(attention(1, 197, 197, 8)), 197) == 10
    assert rows_together(found(attention(1, 4, 4000, 8)), 4) == 1
    assert rows_together(found(attention(1, 4, 16, 8)), 4) == 4


def parallel_loops(program: Program) -> int:
    def count(stmt: Stmt) -> int:
        match stmt:
            case Loop(kind=kind, body=body):
                return (kind == "parallel") + sum(map(count, body))
            case Allocate(body=body):
                return sum(map(count, body))
        return 0

    return sum(map(count, program.body))


@pytest.mark.parametrize("seen", ["another row", "its epilogue"])
def test_a_product_that_sees_more_than_its_rows_is_another_task(seen: str) -> None:
    """p p, whose right factor is in all blocks; (p v) + p, whose epilogue has no place for p."""
    q, v = placeholder((12, 8), f32, "q"), placeholder((12, 12), f32, "v")
    d, m, n = reduce_axis(8, "d"), reduce_axis(12, "m"), reduce_axis(12, "n")
    scores = compute((12, 12), lambda i, j: sum_(q[i, d] * q[j, d], d), "scores")
    total = compute((12, 1), lambda i, _: sum_(scores[i, m], m), "total")
    p = compute((12, 12), lambda i, j: scores[i, j] / total[i, 0], "p")

    def product(i: Expr, j: Expr) -> Expr:
        if seen == "its epilogue":
            return sum_(p[i, n] * v[n, j], n) + p[i, j]
        return sum_(p[i, n] * p[n, j], n)

    assert find_attention(make_task(compute((12, 12), product, "y"))) is None
    alone = compute((12, 12), lambda i, j: sum_(p[i, n] * v[n, j], n), "y")
    assert find_attention(make_task(alone)) is not None


def test_a_step_that_has_all_rows_copies_its_own_panels() -> None:
    form = found(attention(4, 32, 32, 16))
    whole = lower_attention(form, AttentionTiling(4, 2, 16, 1, 1, 32), "k").program
    halves = lower_attention(form, AttentionTiling(4, 2, 16, 1, 1, 16), "k").program
    assert (parallel_loops(whole), len(whole.workspace)) == (1, 0)
    assert (parallel_loops(halves), len(halves.workspace)) == (2, 1)


def test_copies_ahead_have_a_price() -> None:
    """Of two candidates that divide evenly among the threads, the one without them is cheaper."""
    form = found(attention(12, 128, 128, 64))
    sizes = {"mr": 8, "nv": 2, "lanes": 16, "nv2": 1, "lanes2": 1, "in_place": 1, "whole": 0}
    holes = {name: np.full(2, size) for name, size in sizes.items()} | {
        "block": np.array([64, 128])
    }
    halves, whole = attention_costs(form, HOST, 2, holes)
    assert whole < halves


@pytest.mark.parametrize(("depth", "columns", "far"), [(3072, 768, True), (64, 128, False)])
def test_what_only_the_third_cache_holds_arrives_for_every_block(
    depth: int, columns: int, far: bool
) -> None:
    """Smaller blocks read a large right factor more often, and a small one as often as tiles do."""
    form, target = found(attention(1, 128, columns, depth, turned=False)), PRESETS["x86-64-v4"]
    sizes = {"mr": 4, "nv": 6, "lanes": 16, "nv2": 1, "lanes2": 1, "in_place": 1, "whole": 0}
    holes = {name: np.full(2, size) for name, size in sizes.items()} | {"block": np.array([4, 16])}
    often, seldom = attention_costs(form, target, 1, holes)
    assert (often > 1.05 * seldom) == far


def test_rows_that_push_each_other_out_are_copied() -> None:
    """16 rows a page apart share eight places (or twelve) of the first cache."""
    target = PRESETS["x86-64-v3"]
    near, apart = (attention_holes(found(attention(n, 64, 64, 64)), target, 2) for n in (12, 16))
    assert (near["in_place"] == 1).all()
    assert set(apart["mr"][apart["in_place"] == 0]) == set(apart["mr"][apart["mr"] > 8])


def test_what_must_be_computed_first_is_copied() -> None:
    q, k = placeholder((1, 24, 16), f32, "q"), placeholder((1, 24, 16), f32, "k")
    d, m = reduce_axis(16, "d"), reduce_axis(24, "m")
    scores = compute(
        (1, 24, 24), lambda h, i, j: sum_(call("exp", q[h, i, d]) * k[h, j, d], d), "scores"
    )
    peak = compute((1, 24, 1), lambda h, i, _: max_(scores[h, i, m], m), "peak")
    task = make_task(compute((1, 24, 24), lambda h, i, j: scores[h, i, j] - peak[h, i, 0], "y"))
    form = found(task)
    holes = attention_holes(form, HOST, 1)
    assert not holes["in_place"].any()
    tiling = AttentionTiling(**{name: int(column[0]) for name, column in holes.items()})
    check_native(lower_attention(form, tiling, "k"), task, arrays_for(task), HOST)
