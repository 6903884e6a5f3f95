"""Loop programs: text and meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from whet.core.dtypes import f32, i64
from whet.core.errors import WhetError
from whet.ir.expr import Var, as_expr, const
from whet.ir.interpreter import run
from whet.ir.program import (
    Align,
    Allocate,
    Buffer,
    If,
    Let,
    Loop,
    Prefetch,
    Program,
    Stmt,
    Store,
    Transpose,
    While,
    substitute_block,
    walk,
)

N = 5
X, Y = Buffer("x", (N,), f32), Buffer("y", (N,), f32)
I, J, V = Var("i"), Var("j"), Var("v", f32)  # noqa: E741 - the usual names


def insertion_sort() -> Program:
    """y = x sorted, by moving each element down to its place."""
    place = Buffer("place", (1,), i64)
    at = place[0]
    larger = (as_expr(0) < at) & (Y[at - 1] > V)
    move = (Store(Y, (at,), Y[at - 1]), Store(place, (as_expr(0),), at - 1))
    insert = Let(V, X[I], (
        Store(place, (as_expr(0),), I), While(larger, move), Store(Y, (at,), V),
    ))  # fmt: skip
    return Program("sort", (X,), (Y,), (Allocate(place, (Loop(I, as_expr(N), (insert,)),)),))


def clamp() -> Program:
    """y = x where x is positive, else 0, on a parallel loop."""
    keep = If(X[I] > 0.0, (Store(Y, (I,), X[I]),), (Store(Y, (I,), const(0.0, f32)),))
    return Program("clamp", (X,), (Y,), (Loop(I, as_expr(N), (keep,), "parallel"),))


@pytest.mark.parametrize("make", [insertion_sort, clamp], ids=["sort", "clamp"])
def test_text(make: Callable[[], Program], golden: Callable[[str], None]) -> None:
    golden(str(make()))


def test_a_sort() -> None:
    x = np.array([3.0, -1.0, 2.0, 2.0, 0.5], np.float32)
    (y,) = run(insertion_sort(), [x])
    np.testing.assert_array_equal(y, np.sort(x))


def test_a_branch() -> None:
    (y,) = run(clamp(), [np.array([1, -1, 0, 2, -3], np.float32)])
    assert y.tolist() == [1, 0, 0, 2, 0]


def test_inputs_are_left_alone() -> None:
    x = np.arange(N, dtype=np.float32)[::-1].copy()
    before = x.copy()
    run(insertion_sort(), [x])
    np.testing.assert_array_equal(x, before)


def test_an_access_outside_is_an_error() -> None:
    wrong = Program("wrong", (X,), (Y,), (Loop(I, as_expr(N), (Store(Y, (I + 1,), X[I]),)),))
    with pytest.raises(WhetError, match=r"WH1302 'y' of shape \[5\] is accessed at \[5\]"):
        run(wrong, [np.zeros(N, np.float32)])


def test_equal_programs_are_one_object() -> None:
    assert insertion_sort() is insertion_sort()


TILE = Buffer("tile", (4, 4), f32, scope="register")
STORE = Store(X, (I,), X[I] + 1.0)
STATEMENTS = [
    STORE,
    Store(X, (I,), X[I], stream=True),
    Loop(I, as_expr(4), (STORE,), "parallel"),
    While(X[I] > 0.0, (STORE,)),
    If(X[I] > 0.0, (STORE,), (Prefetch(X, (I,)),)),
    Let(I, as_expr(2), (STORE,)),
    Align(I, X, 4, (STORE,)),
    Allocate(TILE, (STORE, Transpose(TILE))),
    Transpose(TILE),
    Prefetch(X, (I,)),
]


@pytest.mark.parametrize("stmt", STATEMENTS, ids=lambda s: type(s).__name__)
def test_a_statement_is_made_of_what_it_contains(stmt: Stmt) -> None:
    assert stmt.rebuild(stmt.expressions, stmt.blocks) is stmt


def test_every_kind_of_statement_is_tried() -> None:
    known = {k.__name__ for k in Stmt.__subclasses__() if k.__module__ == Stmt.__module__}
    assert {type(s).__name__ for s in STATEMENTS} == known


def test_a_walk_meets_every_statement_once_outer_ones_first() -> None:
    inner = Loop(I, as_expr(4), (STORE, Prefetch(X, (I,))))
    outer = If(X[I] > 0.0, (inner,), (STORE,))
    assert list(walk((outer,))) == [outer, inner, STORE, Prefetch(X, (I,)), STORE]


def test_what_says_nothing_about_its_parts_is_refused() -> None:
    @dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
    class Unknown(Stmt):
        """A kind that somebody adds."""

    unknown = Unknown()
    for look in (lambda: list(walk((unknown,))), lambda: substitute_block((unknown,), {})):
        with pytest.raises(NotImplementedError, match="Unknown"):
            look()
