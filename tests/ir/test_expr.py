"""Expressions: interning, types, trivial folding, text, errors."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable

import pytest

from whet.core.dtypes import bool_, f16, f32, i32, i64, u8
from whet.core.errors import WhetError
from whet.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Reduce,
    Var,
    all_of,
    as_expr,
    binary,
    call,
    cast,
    const,
    equal,
    select,
)
from whet.ir.interning import Interned
from whet.ir.tensor import guarded_read, placeholder

I, J, X = Axis("i", 4), Axis("j", 5), Var("x", f32)  # noqa: E741 - the usual names


def test_equal_expressions_are_one_object() -> None:
    assert I * 2 + J is I * 2 + J
    assert (I * 2 + J) is not (J + I * 2)
    assert Axis("i", 4) is not Axis("i", 5)
    assert Axis("i", 4) is not Axis("i", 4, "R")


def test_numbers_that_compare_equal_can_differ() -> None:
    assert const(0.0, f32) is not const(-0.0, f32)
    assert const(1, i64) is not const(1, i32)
    assert Const(True, bool_) is not Const(1, bool_)


def test_unused_expressions_are_released() -> None:
    kept = I + J
    gc.collect()
    before = len(Interned._instances)
    many = [I * n + J for n in range(1000, 1100)]
    assert len(Interned._instances) >= before + len(many)
    del many
    gc.collect()
    assert len(Interned._instances) <= before
    assert I + J is kept


def test_types() -> None:
    assert (X + 1.0).dtype == f32
    assert (X < 1.0).dtype is bool_
    assert call("isnan", X).dtype is bool_
    assert cast(I, u8).dtype == u8
    assert cast(I, i64) is I
    assert Reduce("argmax", (Axis("k", 3, "R"),), X).dtype == i64
    assert select(I < 2, X, 0.0).dtype == f32


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (I + 0, "i"),
        (0 + I, "i"),
        (I - 0, "i"),
        (I * 1, "i"),
        (1 * I, "i"),
        (I * 0, "0"),
        (I // 1, "i"),
        (I % 1, "0"),
        (as_expr(7) // 2, "3"),
        (as_expr(-7) // 2, "-4"),
        (as_expr(-7) % 4, "1"),
        (as_expr(3) < 4, "true"),
        (const(200, u8) + 100, "u8(44)"),
        (X + 0.0, "x + 0.0"),
    ],
    ids=str,
)
def test_trivial_folding(e: Expr, expected: str) -> None:
    assert str(e) == expected


def test_a_conjunction_of_nothing_is_true() -> None:
    assert all_of([]) is const(True, bool_)
    assert all_of([const(True, bool_), I < 2]) is (I < 2)


def test_text(golden: Callable[[str], None]) -> None:
    k = Axis("k", 3, "R")
    a = placeholder((4, 5), f32, "a")
    expressions = [
        (I + J) * 2 - J * (I - 1),
        I - (J - 1),
        I - J - 1,
        (I // 2) % 3 // (J + 1),
        (I < 2) & ((J >= 1) | (I * 2 <= J)),
        ((I < 2) & (J >= 1)) | equal(I, J),
        binary("ne", I, J),
        -X / 2.0,
        call("max", X, 0.0),
        call("not", I < 2),
        select(I < 2, a[I, J] + 1.0, const(-0.0, f32)),
        guarded_read(a, (I - 1, J + 1), 0),
        cast(I * 2, f16),
        const(3, i32),
        const(True, bool_),
        Reduce("sum", (k,), a[I, k] * 2.0),
    ]
    golden("\n".join(map(str, expressions)))


def test_printing_never_loses_structure() -> None:
    """Different trees over the same operands print differently."""
    trees = [
        (I + J) * I,
        I + J * I,
        Binary("sub", I, Binary("sub", J, I)),
        Binary("sub", Binary("sub", I, J), I),
        Binary("floordiv", I, Binary("mul", J, I)),
        Binary("mul", Binary("floordiv", I, J), I),
    ]
    assert len({str(t) for t in trees}) == len(trees)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: I + X, "operands of '+' have types i64 and f32"),
        (lambda: call("frobnicate", I), "unknown scalar function 'frobnicate'"),
        (lambda: call("max", I, X), "operands of 'max' have types ['i64', 'f32']"),
        (lambda: select(I, X, X), "select of i64, f32, f32"),
        (lambda: select(I < 2, X, I), "select of bool, f32, i64"),
        (lambda: placeholder((2, 3), f32, "a")[I], "'a' has rank 2 and is read with 1 indices"),
    ],
)
def test_ill_formed_expressions_are_refused(build: Callable[[], Expr], message: str) -> None:
    with pytest.raises(WhetError, match=re.escape(f"WH1301 {message}")):
        build()
