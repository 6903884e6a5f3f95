"""Reads as views give what the definition gives, or nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from whet.core.dtypes import f32
from whet.ir.evaluate import evaluate_stage
from whet.ir.expr import Axis, Expr, all_of, as_expr, const, select
from whet.ir.tensor import Compute, Placeholder
from whet.tasks import products
from whet.tasks.views import windows

SIZE = 9
X = Placeholder("x", (3, SIZE), f32)
VALUES = {X: np.arange(3 * SIZE, dtype=np.float32).reshape(3, SIZE) + 1}
I, L, K = Axis("i", 3), Axis("l", 4), Axis("k", 3)  # noqa: E741


def inside(index: Expr, extent: int = SIZE) -> Expr:
    return all_of([as_expr(0) <= index, index < extent])


@given(st.integers(-3, 3), st.integers(-2, 2), st.integers(-4, 12))
@settings(deadline=None, max_examples=150)
def test_views_are_the_definition(stride: int, dilation: int, offset: int) -> None:
    index = L * stride + K * dilation + offset
    e = select(inside(index), X[I, index], const(0.0, f32))
    expected = evaluate_stage(Compute("y", (I, L, K), e), VALUES)
    found = windows(e, (I, L, K), VALUES)
    if found is not None:  # the simplifier may have found a test that is always true
        np.testing.assert_array_equal(found, expected)
    reach = [L.extent * abs(stride) + K.extent * abs(dilation)]
    assert found is not None or max(reach) <= 1 or not (stride or dilation)


def test_reads_inside_need_no_condition() -> None:
    found = windows(X[I, L * 2 + K], (I, L, K), VALUES)
    assert found is not None
    expected = evaluate_stage(Compute("y", (I, L, K), X[I, L * 2 + K]), VALUES)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "e",
    [
        X[I, L + K + 5],  # leaves the array
        select(inside(L + K - 1, SIZE - 1), X[I, L + K - 1], const(0.0, f32)),  # cuts more off
        select(inside(L + K), X[I, L + K - 1], const(0.0, f32)),  # tests something else
        select(inside(L + K - 1), X[I, L + K - 1], const(1.0, f32)),  # not zero outside
        X[I, (L + K) // 2],  # not linear
    ],
)
def test_anything_else_is_left_to_the_definition(e: Expr) -> None:
    assert windows(e, (I, L, K), VALUES) is None


def test_products_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution whose windows are written out a few rows at a time."""
    from whet.ir.tensor import compute, reduce_axis, sum_

    x, w = Placeholder("x", (6, 3, 10), f32), Placeholder("w", (5, 3, 3), f32)
    c, k = reduce_axis(3, "c"), reduce_axis(3, "k")
    y = compute(
        (6, 5, 10),
        lambda i, j, m: sum_(
            select(inside(m + k - 1, 10), x[i, c, m + k - 1], const(0.0, f32)) * w[j, c, k], c, k
        ),
        "y",
    )
    rng = np.random.default_rng(0)
    arrays = {t: rng.integers(-3, 4, t.shape).astype(np.float32) for t in (x, w)}
    (whole,) = products.evaluate_fast([y], arrays)
    monkeypatch.setattr(products, "CHUNK_BYTES", 400)
    (pieces,) = products.evaluate_fast([y], arrays)
    expected = evaluate_stage(y, arrays)
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(pieces, expected)
