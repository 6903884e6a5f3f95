"""Programs of threads: what they compute."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.ir.thread_programs import (
    WARP,
    B,
    L,
    W,
    allocate,
    elementwise,
    examples,
    exchanged,
    loop,
    overlapped,
    product,
    refilled,
    ring,
    rotated,
    split_sum,
    store,
    threads,
    transposed,
    turned_product,
    two_kernels,
    warp_totals,
)
from whet.core.dtypes import bf16, f16, f32, i64
from whet.core.types import Array
from whet.ir.expr import Expr, Var, call, cast, const, equal, select
from whet.ir.interpreter import run
from whet.ir.lockstep import kernel, run_threads
from whet.ir.program import Block, Buffer, If, Let, Program, Transpose, While


def wide(a: Array) -> Array:
    return a.astype(np.float64)


MEANINGS: list[tuple[Program, Callable[..., Array]]] = [
    (elementwise(), lambda x: 2 * x + 1),
    (elementwise(31, warps=1), lambda x: 2 * x + 1),
    (transposed(), np.transpose),
    (ring(), lambda a, b: a @ b.T),
    (ring(k=4), lambda a, b: a @ b.T),
    (ring(k=48, stages=4), lambda a, b: a @ b.T),
    (split_sum(), lambda x: x.sum(0)),
    (split_sum(k=16, cluster=8), lambda x: x.sum(0)),
    *((product(d), lambda a, b: 2 * a @ b.T) for d in (f16, bf16, f32)),
    *((turned_product(d), lambda a, b: a.T @ b) for d in (f16, bf16, f32)),
    (two_kernels(), lambda x: (x + 1) ** 2),
    (rotated(), lambda x: np.roll(x, 1, -1)),
    (overlapped(), lambda x: x + 1),
    (exchanged(), lambda x: x.reshape(-1, 64)[:, ::-1].reshape(-1)),
    (refilled(), lambda x: x),
    *((warp_totals(d), lambda x: x.sum(-1, keepdims=True).repeat(WARP, -1)) for d in (f32, i64)),
]


@pytest.mark.parametrize("at_once", [kernel.THREADS_AT_ONCE, 1], ids=["together", "in turn"])
@pytest.mark.parametrize(
    ("program", "meaning"), MEANINGS, ids=[f"{n}-{p.name}" for n, (p, _) in enumerate(MEANINGS)]
)
def test_meaning(
    program: Program, meaning: Callable[..., Array], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "THREADS_AT_ONCE", at_once)
    arrays = examples(program)
    (result,) = run_threads(program, arrays)
    expected = meaning(*map(wide, arrays))
    np.testing.assert_array_equal(wide(result), wide(expected.astype(result.dtype)))


@pytest.mark.parametrize(
    "program", [ring(), split_sum(), product(f16), warp_totals()], ids=lambda p: p.name
)
def test_text(program: Program, golden: Callable[[str], None]) -> None:
    golden(str(program))


def test_factors_in_f32_lose_their_last_bits() -> None:
    """1 + 2**-12 is 1 to tensor cores, and 1 + 2**-10 is kept."""
    program = product(f32, rounds=1)
    a, b = (np.zeros(x.shape, np.float32) for x in program.inputs)
    a[:, 0] = np.where(np.arange(32) % 2, 1 + 2.0**-12, 1 + 2.0**-10)
    b[:, 0] = 1
    (y,) = run_threads(program, [a, b])
    assert (y[0::2] == 2 + 2.0**-9).all()
    assert (y[1::2] == 2).all()


# --------------------------------------------------------------------- threads that do not agree
N = 2 * WARP
X, Y = Buffer("x", (N,), f32), Buffer("y", (N,), f32)
I = W * WARP + L  # noqa: E741 - the usual name
TOTAL = Buffer("total", (1,), f32, scope="register")
ZERO = const(0.0, f32)


def y_of(*body: object) -> Array:
    """Elements of y that threads leave in a register, for x = 0, 1, 2, ..."""
    start, end = store(TOTAL, [0], ZERO), store(Y, [I], TOTAL[0])
    code: Block = (start, *body, end)  # type: ignore[assignment]
    nest = threads(allocate([TOTAL], code), grid=1, warps=2)
    (y,) = run_threads(Program("p", (X,), (Y,), (nest,)), [np.arange(N, dtype=np.float32)])
    return y


def test_loops_of_different_lengths() -> None:
    p = Var("p")
    counted = y_of(loop(p, I % 5, store(TOTAL, [0], TOTAL[0] + cast(p, f32))))
    np.testing.assert_array_equal(counted, [sum(range(i % 5)) for i in range(N)])


def test_loops_that_end_at_different_times() -> None:
    double = store(TOTAL, [0], TOTAL[0] * 2.0 + 1.0)
    counted = y_of(While(TOTAL[0] < X[I], (double,)))
    expected = [2 ** int(i).bit_length() - 1 for i in range(N)]
    np.testing.assert_array_equal(counted, expected)


def test_branches_and_what_is_named_in_them() -> None:
    v = Var("v", f32)
    odd = Let(v, X[I] + 1.0, (If(I < 40, (store(TOTAL, [0], v),), (store(TOTAL, [0], -v),)),))
    branched = y_of(If(equal(I % 2, 1), (odd,)))
    expected = [(i + 1) * (1 if i < 40 else -1) if i % 2 else 0 for i in range(N)]
    np.testing.assert_array_equal(branched, expected)


def test_a_choice_reads_only_what_is_chosen() -> None:
    inside = (I + 1 < N) & (X[I + 1] > 10.0)
    shifted = y_of(store(TOTAL, [0], select(inside, X[I + 1], const(-1.0, f32))))
    expected = [i + 1 if 10 < i + 1 < N else -1 for i in range(N)]
    np.testing.assert_array_equal(shifted, expected)


def test_a_tile_of_registers_is_transposed() -> None:
    tile = Buffer("tile", (2, 2), f32, scope="register")
    fill = [store(tile, [i, j], X[I] * 10.0 + float(2 * i + j)) for i in range(2) for j in range(2)]
    code = allocate([tile], (*fill, Transpose(tile), store(TOTAL, [0], tile[0, 1])))
    np.testing.assert_array_equal(y_of(*code), np.arange(N) * 10 + 2)


def test_elements_that_nobody_writes_are_no_numbers() -> None:
    nest = threads((If(L < 3, (store(Y, [L], X[L]),)),), grid=1, warps=1)
    (y,) = run_threads(Program("p", (X,), (Y,), (nest,)), [np.arange(N, dtype=np.float32)])
    assert y[:3].tolist() == [0, 1, 2]
    assert np.isnan(y[3:]).all()


# ------------------------------------------------------------------------------- random programs
SIZE = 70
IN = tuple(Buffer(f"x{n}", (SIZE,), d) for n, d in enumerate((f32, f32, i64)))
OUT = Buffer("y", (SIZE,), f32)
AT = Var("i")
FLOATS = st.floats(-8, 8, width=16)


def expressions() -> st.SearchStrategy[Expr]:
    """Formulas over an element of each input."""
    leaves = st.one_of(
        st.sampled_from([IN[0][AT], IN[1][AT], cast(IN[2][AT], f32), cast(AT, f32)]),
        FLOATS.map(lambda v: const(v, f32)),
        # An element elsewhere, whose place another input says.
        st.just(IN[0][IN[2][AT] % SIZE]),
    )

    def larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pairs = st.tuples(inner, inner)
        return st.one_of(
            pairs.map(lambda p: p[0] + p[1]),
            pairs.map(lambda p: p[0] * p[1]),
            pairs.map(lambda p: p[0] / p[1]),
            pairs.map(lambda p: call("max", *p)),
            inner.map(lambda e: call("sqrt", e)),
            inner.map(lambda e: cast(cast(e, i64), f32)),
            st.tuples(inner, inner, inner, inner).map(
                lambda p: select((p[0] < p[1]) | (p[1] > p[2]), p[2], p[3])
            ),
        )

    return st.recursive(leaves, larger, max_leaves=12)


@given(expressions(), expressions(), st.integers(0, 99))
@settings(max_examples=60)
def test_formulas_mean_what_they_mean_in_loops(value: Expr, bound: Expr, seed: int) -> None:
    keep = If(bound > 0.5, (store(OUT, [AT], value),), (store(OUT, [AT], ZERO),))
    plain = Program("plain", IN, (OUT,), (loop(AT, SIZE, keep),))
    code = (Let(AT, B * WARP + L, (If(AT < SIZE, (keep,)),)),)
    lockstep = Program("lockstep", IN, (OUT,), (threads(code, grid=3, warps=1),))
    draw = np.random.default_rng(seed)
    arrays = [draw.normal(0, 3, SIZE).astype(np.float32) for _ in range(2)]
    arrays.append(draw.integers(-99, 99, SIZE))
    (expected,), (result,) = run(plain, arrays), run_threads(lockstep, arrays)
    np.testing.assert_array_equal(result, expected)


def test_rate() -> None:
    """Prints how many elements are computed in a second, with all that is watched."""
    large = elementwise(1 << 17, warps=4)
    for program, operations in ((large, 2 << 17), (ring(k=256), 2 * 16 * 16 * 256)):
        arrays = examples(program)
        start = time.perf_counter()
        run_threads(program, arrays)
        print(f"{program.name}: {operations / (time.perf_counter() - start):.3g} operations/s")
