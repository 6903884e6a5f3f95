"""Simplification keeps values, under wrap-around too, and is idempotent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from whet.core.dtypes import DType, bool_, f32, i8, i32, i64, u8
from whet.core.types import Array
from whet.ir.bounds import Interval, bounds, has_bounds
from whet.ir.evaluate import evaluate
from whet.ir.expr import (
    Axis,
    Const,
    Expr,
    Read,
    Var,
    as_expr,
    binary,
    call,
    cast,
    const,
    equal,
    select,
)
from whet.ir.simplify import simplify
from whet.ir.tensor import Compute, Placeholder, placeholder, reduce_axis, sum_

CELLS = {dtype: placeholder((5,), dtype, f"x_{dtype}") for dtype in (i64, i32, i8, u8, f32, bool_)}
AXES = I, J, K = Axis("i", 3), Axis("j", 4), Axis("l", 5)  # noqa: E741 - the usual names


def arrays() -> dict[Placeholder, Array]:
    """Values that reach the ends of each type, so that sums wrap around."""
    data: dict[Placeholder, Array] = {
        CELLS[f32]: np.array([-2.5, -0.0, 0.0, 1.0, np.inf], np.float32),
        CELLS[bool_]: np.array([True, False, True, True, False]),
    }
    for dtype in (i64, i32, i8, u8):
        info = np.iinfo(dtype.numpy)
        data[CELLS[dtype]] = np.array([info.min, info.max, 1, 7, 100], dtype.numpy)
    return data


def value_of(e: Expr) -> Array:
    """The expression on its whole domain."""
    (value,) = evaluate([Compute("y", AXES, e)], arrays())
    return value


Leaves = Callable[[st.DrawFn], Expr]


def draw_index(draw: st.DrawFn) -> Expr:
    """An axis or a small number."""
    return draw(st.sampled_from([I, J, K, *(const(v, i64) for v in range(-9, 21, 3))]))


def draw_narrow(dtype: DType) -> Leaves:
    """Numbers of a type that wraps around: elements, converted axes, literals at its ends."""
    info = np.iinfo(dtype.numpy)
    axes = [cast(a, dtype) for a in (I, J, K)]
    cells = [Read(CELLS[dtype], (K,)), Read(CELLS[dtype], (I,))]
    numbers = [const(v, dtype) for v in (int(info.min), int(info.max), 0, 1, 2, 7)]
    return lambda draw: draw(st.sampled_from([*axes, *cells, *numbers]))


def draw_integer(draw: st.DrawFn, leaf: Leaves, depth: int) -> Expr:
    """An integer expression of at most the given depth."""
    kind = draw(st.integers(0, 10)) if depth else 0
    if kind == 0:
        return leaf(draw)
    a = draw_integer(draw, leaf, depth - 1)
    if kind <= 3:
        b = draw_integer(draw, leaf, depth - 1)
        return (a + b, a - b, a * b)[kind - 1]
    if kind <= 6:
        divisor = draw(st.integers(1, 12))
        return (a * divisor, a // divisor, a % divisor)[kind - 4]
    if kind == 7:
        return call(draw(st.sampled_from(["neg", "abs", "sign"])), a)
    b = draw_integer(draw, leaf, depth - 1)
    if kind == 8:
        return call(draw(st.sampled_from(["min", "max"])), a, b)
    return select(draw_condition(draw, leaf, depth - 1), a, b)


def draw_condition(draw: st.DrawFn, leaf: Leaves, depth: int) -> Expr:
    """A truth value made of comparisons."""
    kind = draw(st.integers(0, 8)) if depth > 0 else draw(st.integers(0, 5))
    if kind <= 5:
        a, b = (draw_integer(draw, leaf, max(depth - 1, 1)) for _ in range(2))
        return binary(("lt", "le", "gt", "ge", "eq", "ne")[kind], a, b)
    a = draw_condition(draw, leaf, depth - 1)
    if kind == 6:
        return call("not", a)
    b = draw_condition(draw, leaf, depth - 1)
    return a & b if kind == 7 else a | b


@st.composite
def index_expressions(draw: st.DrawFn) -> Expr:
    return draw_integer(draw, draw_index, 4)


@st.composite
def narrow_expressions(draw: st.DrawFn) -> Expr:
    return draw_integer(draw, draw_narrow(draw(st.sampled_from([i8, u8, i32, i64]))), 4)


@st.composite
def conditions(draw: st.DrawFn) -> Expr:
    leaf = draw(st.sampled_from([draw_index, draw_narrow(i8), draw_narrow(u8)]))
    return draw_condition(draw, leaf, 3)


def check_simplified(e: Expr) -> None:
    simple = simplify(e)
    assert simple.dtype == e.dtype
    before, after = value_of(e), value_of(simple)
    assert before.tobytes() == after.tobytes(), f"{e}  became  {simple}"
    assert simplify(simple) is simple, f"{simple}  became  {simplify(simple)}"
    if has_bounds(e):
        for x in (e, simple):
            reach = bounds(x)
            assert reach.low <= int(before.min()), f"{x} in {reach}"
            assert int(before.max()) <= reach.high, f"{x} in {reach}"


@settings(max_examples=400, deadline=None)
@given(index_expressions())
def test_index_expressions_keep_their_values(e: Expr) -> None:
    check_simplified(e)


@settings(max_examples=300, deadline=None)
@given(narrow_expressions())
def test_scalars_keep_their_values_under_wrap_around(e: Expr) -> None:
    check_simplified(e)


@settings(max_examples=300, deadline=None)
@given(conditions())
def test_conditions_keep_their_values(e: Expr) -> None:
    check_simplified(e)


def draw_float(draw: st.DrawFn, depth: int) -> Expr:
    kind = draw(st.integers(0, 7)) if depth else 0
    if kind == 0:
        numbers = [const(v, f32) for v in (0.0, -0.0, 1.0, -1.0, 2.5)]
        return draw(st.sampled_from([Read(CELLS[f32], (K,)), *numbers]))
    a = draw_float(draw, depth - 1)
    if kind == 1:
        return call(draw(st.sampled_from(["neg", "abs", "floor", "exp"])), a)
    b = draw_float(draw, depth - 1)
    if kind <= 5:
        return (a + b, a - b, a * b, a / b)[kind - 2]
    return call("max", a, b) if kind == 6 else select(a < b, b, a)


@st.composite
def float_expressions(draw: st.DrawFn) -> Expr:
    return draw_float(draw, 4)


@settings(max_examples=200, deadline=None)
@given(float_expressions())
def test_floats_keep_their_bits(e: Expr) -> None:
    before, after = value_of(e), value_of(simplify(e))
    same = (before == after) & (np.signbit(before) == np.signbit(after))
    assert (same | (np.isnan(before) & np.isnan(after))).all(), f"{e}  became  {simplify(e)}"


N, M = Var("n"), Var("m")
CASES = {
    "(i * 4 + j) // 4": ((I * 4 + J) // 4, "i"),
    "(i * 4 + j) % 4": ((I * 4 + J) % 4, "j"),
    "quotient and remainder": (N // 12 * 12 + N % 12, "n"),
    "nested quotient and remainder": (N // 12 * 12 + N % 12 // 4 * 4 + N % 4, "n"),
    "nested quotients": (K // 2 // 2, "l // 4"),
    "remainder of a remainder": (N % 12 % 4, "n % 4"),
    "common factor": ((I * 6 + J * 2) // 4, "(i * 3 + j) // 2"),
    "common factor of a remainder": ((I * 6 + J * 2) % 4, "(i + j) % 2 * 2"),
    "terms in order": (J + I * 2 + J - 1, "i * 2 + j * 2 - 1"),
    "cancelled": (N + I - N, "i"),
    "unbounded quotient": ((N * 4) // 4, "n * 4 // 4"),
    "padding": ((as_expr(0) <= I + J - 1) & (I + J - 1 < 4), "0 < i + j and i + j < 5"),
    "implied": ((I < 2) & (I < 3), "i < 2"),
    "implied in a branch": (select(N < 3, select(N < 5, I, J), J), "select(n < 3, i, j)"),
    "excluded in a branch": (select(N < 3, I, select(N < 2, I, J)), "select(n < 3, i, j)"),
    "decided": (I * 4 + J < 12, "true"),
    "never equal": (equal(I * 2, 3), "false"),
    "divided comparison": (N * 2 < 5, "n * 2 < 5"),
    "divided bounded comparison": (I * 2 < 3, "i < 2"),
    "minimum": (call("min", I, 7), "i"),
    "negated": (call("not", N < 3), "2 < n"),
    "same branches": (select(N < 3, I + J, J + I), "i + j"),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    e, expected = CASES[name]
    assert str(simplify(e)) == expected


def test_ranges_of_variables_are_used() -> None:
    ranges = {N: Interval(0, 9)}
    assert str(simplify(N * 4 // 4, ranges)) == "n"
    assert str(simplify(N < 10, ranges)) == "true"
    assert str(simplify((N * 8 + M) // 8, {**ranges, M: Interval(0, 7)})) == "n"


def test_knowledge_of_an_axis_does_not_enter_a_reduction_over_it() -> None:
    k = reduce_axis(5, "k")
    inner = sum_(select(k < 2, const(1, i64), const(3, i64)), k)
    e = select(k < 2, inner, inner + 1)
    assert "select(k < 2, 1, 3)" in str(simplify(e))


def test_division_by_zero_is_left_alone() -> None:
    assert str(simplify(const(1, i64) // const(0, i64))) == "1 // 0"


def test_literals_wrap_around_like_the_type() -> None:
    e = simplify(const(200, u8) + const(100, u8))
    assert isinstance(e, Const)
    assert e.value == 44
