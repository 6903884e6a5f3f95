"""Row stages on rows in registers mean the same, whatever they are and however long rows are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.schedule.small_tasks import arrays_for, check_native, make_task
from tests.targets import HOST
from whet.core.dtypes import f32
from whet.ir.expr import Expr, call, select
from whet.ir.tensor import Compute, compute, max_, placeholder, reduce_axis, sum_
from whet.schedule.families.attention.lower import lower_attention
from whet.schedule.families.attention.match import AttentionTiling, find_attention
from whet.schedule.families.attention.nan_rows import may_miss_nan
from whet.schedule.families.attention.row_registers import RowVectors, stay_in_registers
from whet.tasks.task import Task

WIDEST = HOST.lanes(32)


def scores(heads: int, rows: int, columns: int, depth: int, *, masked: bool = False) -> Compute:
    """Scaled products, under a mask that all heads share."""
    q, k = (placeholder((n, heads, depth), f32, "qk") for n in (rows, columns))
    mask, d = placeholder((rows, columns), f32, "mask"), reduce_axis(depth, "d")

    def score(h: Expr, i: Expr, j: Expr) -> Expr:
        made = sum_(q[i, h, d] * k[j, h, d], d) * 0.25
        return made + mask[i, j] if masked else made

    return compute((heads, rows, columns), score, "scores")


def per_row(s: Compute, reduce: str, of: Compute) -> Compute:
    along = reduce_axis(s.shape[-1], "m")
    how = max_ if reduce == "max" else sum_
    return compute((*s.shape[:2], 1), lambda h, i, _: how(of[h, i, along], along), "number")


def softmax(s: Compute) -> Task:
    peak = per_row(s, "max", s)
    e = compute(s.shape, lambda h, i, j: call("exp", s[h, i, j] - peak[h, i, 0]), "e")
    total = per_row(s, "sum", e)
    return make_task(compute(s.shape, lambda h, i, j: e[h, i, j] * (1.0 / total[h, i, 0]), "y"))


def normalized(s: Compute) -> Task:
    """Rows with a weight for each column, as after a layer normalization."""
    weight, n = placeholder((s.shape[-1],), f32, "w"), s.shape[-1]
    mean = per_row(s, "sum", s)
    off = compute(s.shape, lambda h, i, j: s[h, i, j] - mean[h, i, 0] * (1 / n), "off")
    square = compute(s.shape, lambda h, i, j: off[h, i, j] * off[h, i, j], "square")
    spread = per_row(s, "sum", square)
    return make_task(
        compute(
            s.shape,
            lambda h, i, j: off[h, i, j] / call("sqrt", spread[h, i, 0] + 1.0) * weight[j],
            "y",
        )
    )


def logsumexp(s: Compute) -> Task:
    """One number per row is all that comes out."""
    peak = per_row(s, "max", s)
    e = compute(s.shape, lambda h, i, j: call("exp", s[h, i, j] - peak[h, i, 0]), "e")
    total, shape = per_row(s, "sum", e), (*s.shape[:2], 1)
    return make_task(
        compute(shape, lambda h, i, _: call("log", total[h, i, 0]) + peak[h, i, 0], "y")
    )


@settings(deadline=None, max_examples=25)
@given(
    columns=st.sampled_from([5, 16, 33, 48, 64, 100, 117, 128]),
    rows=st.integers(2, 13),
    depth=st.sampled_from([4, 16, 19]),
    mr=st.integers(1, 6),
    blocks=st.integers(1, 2),
    masked=st.booleans(),
    stages=st.sampled_from([softmax, normalized, logsumexp]),
)
def test_rows_in_registers_mean_the_task(
    columns: int,
    rows: int,
    depth: int,
    mr: int,
    blocks: int,
    masked: bool,
    stages: Callable[[Compute], Task],
) -> None:
    task = stages(scores(2, rows, columns, depth, masked=masked))
    form = find_attention(task)
    assert form is not None
    assert form.rows_fit_registers
    lanes = min(WIDEST, 1 << (columns.bit_length() - 1))
    mr = min(mr, rows)
    block = max(mr, -(-rows // blocks))
    nv = RowVectors(columns, lanes).count
    kernel = lower_attention(form, AttentionTiling(mr, nv, lanes, 1, 1, block, 1, 1), "k")
    check_native(kernel, task, arrays_for(task), HOST)


def test_elements_that_two_vectors_share_are_counted_once() -> None:
    row = RowVectors(33, 16)
    assert (row.count, row.repeated) == (3, 15)
    assert RowVectors(32, 16).repeated == 0


@pytest.mark.parametrize("seen", ["next column", "half"])
def test_stages_that_look_beside_their_place_stay_in_memory(seen: str) -> None:
    s = scores(1, 4, 32, 8)
    peak = per_row(s, "max", s)
    if seen == "half":
        shape = (1, 4, 16)
        task = make_task(compute(shape, lambda h, i, j: s[h, i, j] - peak[h, i, 0], "y"))
    else:
        task = make_task(
            compute(s.shape, lambda h, i, j: s[h, i, (j + 1) % 32] - peak[h, i, 0], "y")
        )
    form = find_attention(task)
    assert form is None or not stay_in_registers(form.rows, form.first.stage)


def test_masked_columns_get_nothing() -> None:
    """Minus infinity under the mask is a probability of zero, as if the columns were not there."""
    task = softmax(scores(1, 6, 40, 8, masked=True))
    form = find_attention(task)
    assert form is not None
    arrays = arrays_for(task)
    (mask,) = (a for a in arrays.values() if a.shape == (6, 40))
    mask[:, ::3] = -np.inf
    kernel = lower_attention(form, AttentionTiling(3, 3, 16, 1, 1, 6, 1, 1), "k")
    check_native(kernel, task, arrays, HOST)


def only_peak(s: Compute) -> Task:
    peak = per_row(s, "max", s)
    return make_task(compute(s.shape, lambda h, i, j: s[h, i, j] - peak[h, i, 0], "y"))


def with_choice(s: Compute) -> Task:
    """Where the exponentials are not positive, a NaN among them is not seen."""
    peak = per_row(s, "max", s)
    e = compute(
        s.shape,
        lambda h, i, j: select(s[h, i, j] > 0.0, call("exp", s[h, i, j] - peak[h, i, 0]), 0.0),
        "e",
    )
    total = per_row(s, "sum", e)
    return make_task(compute(s.shape, lambda h, i, j: e[h, i, j] * (1.0 / total[h, i, 0]), "y"))


@pytest.mark.parametrize(
    ("stages", "missed"),
    [(softmax, True), (logsumexp, True), (only_peak, False), (with_choice, False)],
)
def test_a_nan_reaches_what_it_should(stages: Callable[[Compute], Task], missed: bool) -> None:
    """A maximum may miss a NaN exactly where the results are the same."""
    task = stages(scores(1, 6, 40, 8, masked=True))
    form = find_attention(task)
    assert form is not None
    peak = form.rows.stages[0]
    assert may_miss_nan(peak, form.rows.stages, form.rows.row_rank) is missed
    kernel = lower_attention(form, AttentionTiling(3, 3, 16, 1, 1, 6, 1, 1), "k")
    for place in (0, 17, 25, 39):
        arrays = arrays_for(task)
        (mask,) = (a for a in arrays.values() if a.shape == (6, 40))
        mask[2, place] = np.nan
        check_native(kernel, task, arrays, HOST)
