"""Unrolled loops: bound variables say what rebuilt expressions would, in every copy."""

from __future__ import annotations

import re
from contextlib import ExitStack

import numpy as np
from hypothesis import given, settings, strategies as st

from tests.codegen.running import run_native
from whet.codegen.llvm.bindings import Bindings
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.module import Module
from whet.core.dtypes import f32, i64
from whet.ir.affine import affine, combine, substitute
from whet.ir.expr import Expr, Var, as_expr, cast, const, select
from whet.ir.interpreter import run
from whet.ir.program import Allocate, Buffer, If, Let, Loop, Program, Stmt, Store

i, j, k, lane = Var("i"), Var("j"), Var("k"), Var("lane")
n = Buffer("n", (12,), i64)
x = Buffer("x", (12,), f32)
X = np.linspace(-3, 3, 12, dtype=np.float32)
N = np.array([3, 0, 5, 1, 2, 11, 7, 7, 1, 4, 9, 10], np.int64)


def integers(symbols: tuple[Expr, ...], depth: int = 3) -> st.SearchStrategy[Expr]:
    """Index arithmetic over the symbols; values from memory are among its leaves."""
    leaves = st.sampled_from([*symbols, *map(as_expr, range(4))])
    if not depth:
        return leaves
    inner = integers(symbols, depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, c: a * c, inner, st.integers(0, 5)),
        st.builds(lambda a, b: a * b, leaves, leaves),
        st.builds(lambda a, c: a // c, inner, st.integers(1, 5)),
        st.builds(lambda a, c: a % c, inner, st.integers(1, 5)),
        st.builds(lambda a: n[a % 12], inner),
    )


def values(symbols: tuple[Expr, ...]) -> st.SearchStrategy[Expr]:
    """Floats that depend on the symbols in every way: by address, by number, by choice."""
    at = integers(symbols, 2)
    read = st.builds(lambda a: x[a % 12], at)
    guarded = st.builds(
        lambda a, b: select(a >= 0, select(a < 12, x[a], b), const(7.0, f32)), at, read
    )
    number = st.builds(lambda a: cast(a % 100, f32), at)
    chosen = st.builds(lambda a, b, c: select(a < 3, b, c), at, read, number)
    leaf = st.one_of(read, guarded, number, chosen)
    return st.one_of(leaf, st.builds(lambda a, b, c: a * b + c, leaf, leaf, leaf))


@settings(max_examples=150, deadline=None)
@given(
    integers((i, j, k, lane)),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4),
)
def test_forms_and_folding_are_those_of_substitution(
    e: Expr, copies: list[tuple[int, int]]
) -> None:
    """One object through all copies, as the generator of code has it."""
    bindings = Bindings()
    place = Buffer("place", (4, 6), f32, offset=2)
    for number, (first, second) in enumerate(copies):
        renamed = Var(f"k.{number}")
        bound = {i: as_expr(first), j: as_expr(second), k: renamed}
        with ExitStack() as stack:
            for var, value in bound.items():
                stack.enter_context(bindings.bound(var, value))
            rebuilt = substitute(e, bound)
            assert bindings.resolve(e) is rebuilt
            assert bindings.form(e) == affine(rebuilt)
            at = (rebuilt, renamed)
            expected = combine([(affine(a), s) for a, s in zip(at, (6, 1))], 2)
            assert bindings.address(place, (e, k)) == expected
        assert bindings.resolve(e) is e
        assert bindings.form(e) == affine(e)


def repeated(var: Var, extent: int, kind: str, *body: Stmt) -> Loop:
    return Loop(var, as_expr(extent), body, kind)  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(
    values((i, j, k, lane)),
    values((i, j, k, lane)),
    integers((i, j, k), 2),
    integers((i, j), 2),
    st.permutations(["unroll", "unroll", "serial"]),
)
def test_unrolled_nests_compute_what_they_mean(
    first: Expr, second: Expr, decided: Expr, named: Expr, kinds: list[str]
) -> None:
    """Two loops unrolled and one not, in any order, around registers and a name."""
    y = Buffer("y", (2, 2, 2, 4), f32)
    acc = Buffer("acc", (2, 4), f32, scope="register")
    name = Var("m")
    row = j if kinds[1] == "unroll" else as_expr(0)
    place = (i, j, k, lane)
    summed = Store(y, place, acc[row, lane] + second)
    other = Store(y, place, x[name % 12] + 1.0)
    nest: Stmt = repeated(
        k, 2, kinds[2],
        repeated(lane, 4, "vector", Store(acc, (row, lane), first)),
        If(decided > 2, (repeated(lane, 4, "vector", summed),),
           (repeated(lane, 4, "vector", other),)),
    )  # fmt: skip
    nest = repeated(j, 2, kinds[1], Let(name, named, (nest,)))
    nest = Allocate(acc, (repeated(i, 2, kinds[0], nest),))
    program = Program("kernel", (n, x), (y,), (nest,))
    (expected,) = run(program, (N, X))
    (got,) = run_native(program, (N, X))
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-5)


def test_copies_share_one_pointer_and_differ_by_constants() -> None:
    """What the loop outside knows is computed once, whatever is unrolled inside."""
    y = Buffer("y", (4, 6), f32)
    copy = repeated(j, 6, "unroll", Store(y, (i, j), x[j * 2]))
    module = Module()
    emit_program(Program("kernel", (x,), (y,), (repeated(i, 4, "serial", copy),)), module)
    text = module.text()
    assert len(re.findall(r"store float", text)) == 6
    assert len(re.findall(r"mul nsw", text)) == 1
    assert sorted(map(int, re.findall(r"getelementptr float, ptr %v\d+, i64 (\d+)", text))) == [
        1, 2, 3, 4, 5,
    ]  # fmt: skip


def test_a_loop_of_one_step_around_a_parallel_one() -> None:
    """What is bound outside of a function is known within."""
    y = Buffer("y", (1, 4), f32)
    inner = repeated(i, 4, "parallel", Store(y, (j, i), x[i + j + k * 4]))
    body = repeated(k, 3, "unroll", repeated(j, 1, "serial", inner))
    program = Program("kernel", (x,), (y,), (body,))
    (got,) = run_native(program, (X,))
    np.testing.assert_array_equal(got, run(program, (X,))[0])
