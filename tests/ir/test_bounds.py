"""Interval bounds (their soundness on random expressions is tested with the simplifier)."""

from __future__ import annotations

import pytest

from whet.core.dtypes import f32, i8, i64, u8
from whet.ir.bounds import Interval, bounds
from whet.ir.expr import Axis, Expr, Var, as_expr, call, cast, select
from whet.ir.simplify import assume
from whet.ir.tensor import max_, placeholder, reduce_axis, sum_

I, J = Axis("i", 3), Axis("j", 4)  # noqa: E741 - the usual names
N, B = Var("n"), Var("b", i8)
K = reduce_axis(5, "k")
CELLS = placeholder((3,), u8, "cells")


@pytest.mark.parametrize(
    ("e", "low", "high"),
    [
        (I * 4 + J, 0, 11),
        (I - J, -3, 2),
        (I * -2, -4, 0),
        ((I * 4 + J) // 5, 0, 2),
        ((I - 3) // 2, -2, -1),
        ((I + 8) % 8, 0, 2),
        ((I + 7) % 8, 0, 7),
        (I % 8, 0, 2),
        (I < 3, 1, 1),
        (I < J, 0, 1),
        (I * 2 >= 5, 0, 0),
        (call("max", I, J), 0, 3),
        (call("min", I, 1), 0, 1),
        (call("abs", I - 2), 0, 2),
        (call("neg", I), -2, 0),
        (call("truncdiv", I - 5, 2), -2, -1),
        (call("truncmod", I - 5, as_expr(4)), -3, 0),
        (select(N < 2, I, J + 10), 0, 13),
        (cast(I, u8), 0, 2),
        (cast(I - 1, u8), 0, 255),
        (B, -128, 127),
        (B + 1, -128, 127),
        (CELLS[I], 0, 255),
        (sum_(K * 2, K), 0, 40),
        (max_(K, K), 0, 4),
        (Var("x", f32) < 1.0, 0, 1),
        (N // N, -(1 << 63), (1 << 63) - 1),
    ],
    ids=str,
)
def test_bounds(e: Expr, low: int, high: int) -> None:
    assert bounds(e) == Interval(low, high)


def test_given_ranges_narrow_any_expression() -> None:
    assert bounds(N * 2, {N: Interval(1, 4)}) == Interval(2, 8)
    assert bounds(I + J, {I + J: Interval(2, 3)}) == Interval(2, 3)


@pytest.mark.parametrize(
    ("condition", "holds", "expected"),
    [
        (I + J < 3, True, Interval(0, 2)),
        (I + J < 3, False, Interval(3, 5)),
        ((I + J >= 1) & (I + J <= 4), True, Interval(1, 4)),
        (call("not", I + J < 3), True, Interval(3, 5)),
        ((I + J < 2) | (I + J > 4), False, Interval(2, 4)),
        (I * 2 + J * 2 < 5, True, Interval(0, 2)),
    ],
)
def test_conditions_narrow_what_they_guard(
    condition: Expr, holds: bool, expected: Interval
) -> None:
    assert bounds(I + J, assume({}, condition, holds)) == expected


def test_intervals_print_as_ranges() -> None:
    assert str(bounds(I)) == "0..2"
    assert as_expr(2).dtype == i64
