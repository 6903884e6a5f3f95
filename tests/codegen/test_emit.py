"""Statements as machine code mean what the loop program means."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from tests.build.guard_pages import GuardedMemory
from tests.codegen.running import run_native
from tests.targets import HOST
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.module import Module
from whet.core.dtypes import DType, bf16, bool_, f16, f32, f64, i32, i64
from whet.core.types import Array
from whet.ir.expr import Axis, Expr, Reduce, Var, as_expr, call, cast, const, reinterpret, select
from whet.ir.interpreter import run
from whet.ir.program import Allocate, Buffer, If, Let, Loop, Program, Stmt, Store, While

i, j = Var("i"), Var("j")
x = Buffer("x", (12,), f32)
n = Buffer("n", (12,), i64)
y = Buffer("y", (12,), f32)
X = np.linspace(-3, 3, 12, dtype=np.float32)
N = np.array([3, 0, 5, -1, 2, 11, 7, 7, 1, 4, 9, 30], np.int64)


def check(*body: Stmt) -> None:
    program = Program("kernel", (x, n), (y,), body)
    (expected,) = run(program, (X, N))
    (got,) = run_native(program, (X, N))
    np.testing.assert_array_equal(got, expected)


def each(*body: Stmt, kind: str = "serial") -> Loop:
    return Loop(i, as_expr(12), body, kind)  # type: ignore[arg-type]


def test_names_are_fresh_whatever_the_hints() -> None:
    writer = FunctionWriter(Module(), "f", "")
    names = [writer.fresh(hint) for _ in range(150) for hint in ("j", "j1", "j11", "v")]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", ["serial", "parallel", "unroll", "vector"])
def test_kinds_of_loops(kind: str) -> None:
    check(each(Store(y, (i,), x[i] * 2 + 1), kind=kind))


def test_vector_loops_gather_and_scatter() -> None:
    check(each(Store(y, (as_expr(11) - i,), x[i * 5 % 12]), kind="vector"))


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(("step", "count"), [(1, 12), (1, 5), (2, 6), (2, 3)])
def test_only_the_first_lanes_count(step: int, count: int, checked: bool) -> None:
    """Sixteen lanes over twelve elements: the others neither read nor write."""
    value = select(i < count, x[i * step], const(7.0, f32)) + 1.0
    zero = Loop(i, as_expr(12), (Store(y, (i,), const(0.0, f32)),), "vector")
    some = Loop(i, as_expr(16), (If(i < 12, (Store(y, (i,), value),)),), "vector")
    program = Program("kernel", (x,), (y,), (zero, some))
    (got,) = run_native(program, [X], checked=checked)
    np.testing.assert_array_equal(got, run(program, (X,))[0])


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("first", range(-3, 4))
@pytest.mark.parametrize("step", [1, 2])
def test_some_lanes_count(step: int, first: int, checked: bool) -> None:
    """A vector that begins before the elements, or ends behind them: reads at both edges of
    memory, even and odd ones."""
    at = i * step + first
    value = select((at >= 0) & (at < 12), x[at], const(7.0, f32))
    zero = Loop(i, as_expr(12), (Store(y, (i,), const(0.0, f32)),), "vector")
    some = Loop(i, as_expr(16), (If((i >= 1) & (i < 12), (Store(y, (i,), value),)),), "vector")
    program = Program("kernel", (x,), (y,), (zero, some))
    (got,) = run_native(program, [X], checked=checked)
    np.testing.assert_array_equal(got, run(program, (X,))[0])


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("at", [i, as_expr(11) - i, i * 3, i * 2 + 1, n[i], i * i % 7 + i], ids=str)
def test_what_other_lanes_would_read_is_left_alone(at: Expr, checked: bool) -> None:
    """Four of sixteen lanes count, and memory ends behind (or begins with) what they read."""
    zero = Loop(i, as_expr(12), (Store(y, (i,), const(0.0, f32)),), "vector")
    some = Loop(i, as_expr(16), (If(i < 4, (Store(y, (i,), x[at] + x[0]),)),), "vector")
    program = Program("kernel", (x, n), (y,), (zero, some))
    places = np.array([3, 0, 11, 2, *[1 << 40] * 8])
    (expected,) = run(program, (X, places))
    for at_end in (True, False):
        memory = GuardedMemory(at_end=at_end)
        arrays = [memory.copy(X, x.type), memory.copy(places, n.type)]
        (got,) = run_native(program, arrays, checked=checked)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("first", [0, 1, 2, 5])
def test_lanes_that_count_by_conditions_around_conditions(step: int, first: int) -> None:
    """Behind `i < first`, the lanes before do not count, whatever the condition inside says."""
    at = (i - first) * step
    inside = select(at < 12, x[at], const(7.0, f32))
    value = select(i < first, const(5.0, f32), inside)
    turned = select(i >= first, inside, const(5.0, f32))
    chosen = select(n[0] > 2, value + 1.0, turned)
    program = Program("kernel", (x, n), (y,), (
        each(Store(y, (i,), value), kind="vector"),
        each(Store(y, (i,), y[i] + turned), kind="vector"),
        each(Store(y, (i,), y[i] + chosen), kind="vector"),
    ))  # fmt: skip
    (expected,) = run(program, (X, N))
    for at_end in (True, False):
        memory = GuardedMemory(at_end=at_end)
        arrays = [memory.copy(X, x.type), memory.copy(N, n.type)]
        (got,) = run_native(program, arrays)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("at", [i, i * 3, as_expr(11) - i * 2], ids=str)
@pytest.mark.parametrize("dtype", [f32, bool_, f16, i64], ids=str)
def test_some_lanes_are_stored(dtype: DType, at: Expr, checked: bool) -> None:
    """Neighbours or not, of every kind of element; memory ends behind the last one."""
    out = Buffer("out", (12,), dtype)
    zero = Loop(i, as_expr(12), (Store(out, (i,), const(0, dtype)),), "vector")
    some = Loop(i, as_expr(16), (If(i < 4, (Store(out, (at,), cast(x[i], dtype)),)),), "vector")
    program = Program("kernel", (x,), (out,), (zero, some))
    (got,) = run_native(program, [X], checked=checked)
    np.testing.assert_array_equal(got, run(program, (X,))[0])


def test_else_is_decided_before_then_runs() -> None:
    then = (Store(y, (as_expr(0),), const(1.0, f32)),)
    other = (Store(y, (as_expr(1),), const(5.0, f32)),)
    zero = each(Store(y, (i,), const(0.0, f32)))
    check(zero, If(y[0] < 0.5, then, other))


def test_loops_of_dynamic_extent_may_be_empty() -> None:
    inner = Loop(j, call("min", call("max", n[i], 0), 12), (Store(y, (j,), y[j] + x[i]),))
    check(each(Store(y, (i,), const(0.0, f32))), each(inner))


def test_while_loops_read_what_they_write() -> None:
    count = Buffer("count", (), i64)
    turn = (Store(count, (), count[()] + 1), Store(y, (i,), y[i] + 0.5))
    loop = While((count[()] < n[i]) & (y[i] < 3.0), turn)
    check(each(Store(y, (i,), x[i]), Allocate(count, (Store(count, (), as_expr(0)), loop))))


def test_the_right_side_of_and_may_rely_on_the_left() -> None:
    inside = (n[i] >= 0) & (n[i] < 12) & (x[n[i]] > 0.0)
    check(each(Store(y, (i,), select(inside, x[n[i]], const(-1.0, f32)))))


def test_bindings_of_one_name_do_not_mix() -> None:
    t = Var("t")
    first = Let(t, i + 1, (Store(y, (t - 1,), x[t - 1]),))
    second = Let(t, as_expr(11) - i, (Store(y, (t,), y[t] + cast(t, f32)),))
    check(each(first), each(second))


def test_a_store_is_seen_by_later_loads() -> None:
    body = (Store(y, (i,), x[i]), Store(y, (i,), y[i] * 2), Store(y, (i,), y[i] + y[i]))
    check(each(*body))
    check(each(Store(y, (i,), x[i])), Loop(j, as_expr(11), (Store(y, (j + 1,), y[j] + y[j + 1]),)))


def test_division_rounds_down() -> None:
    by = call("max", n[i], 1)
    check(each(Store(y, (i,), cast((i - 6) // 4 * 10 + (i - 6) % 4, f32))),
          each(Store(y, (i,), y[i] + cast((i - 6) // by + (i - 6) % by, f32))))  # fmt: skip


# ----------------------------------------------------------------------------------- conversion
FLOATS = np.array(
    [0.0, -0.0, 1.0, 1 / 3, -2.7, 65504.0, 65520.0, 1e-7, 6e-8, 1e30, np.inf, np.nan, 2049.0,
     1.0009765625, 1.00048828125, -1e-40], np.float64,
)  # fmt: skip


@pytest.mark.parametrize("target", [f16, bf16, f32, f64], ids=str)
@pytest.mark.parametrize("source", [f16, bf16, f32, f64], ids=str)
@pytest.mark.parametrize("lanes", ["vector", "serial"])
def test_conversions_between_floats_round_once(source: DType, target: DType, lanes: str) -> None:
    a, b = Buffer("a", (16,), source), Buffer("b", (16,), target)
    body = Loop(i, as_expr(16), (Store(b, (i,), cast(a[i], target)),), lanes)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        given = FLOATS.astype(source.numpy)
        expected = given.astype(target.numpy)
    (got,) = run_native(Program("kernel", (a,), (b,), (body,)), [given])
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))


def test_bits() -> None:
    out = Buffer("out", (12,), i32)
    body = each(Store(out, (i,), reinterpret(x[i], i32)))
    (got,) = run_native(Program("kernel", (x,), (out,), (body,)), [X])
    np.testing.assert_array_equal(got, X.view(np.int32))


# ------------------------------------------------------------------------------------ functions
def apply(name: str, values: Array, lanes: int = 8) -> Array:
    size = values.size
    a, b = Buffer("a", (size,), f32), Buffer("b", (size,), f32)
    k = Var("k")
    at = k * lanes + j
    inner = Loop(j, as_expr(lanes), (Store(b, (at,), call(name, a[at])),), "vector")
    (got,) = run_native(
        Program("kernel", (a,), (b,), (Loop(k, as_expr(size // lanes), (inner,)),)), [values]
    )
    return got


ERF_IN_F64 = np.vectorize(math.erf)
EXACT = {
    "exp": np.exp, "tanh": np.tanh, "log": np.log, "erf": ERF_IN_F64,
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
}  # fmt: skip
UNITS = {"exp": 2, "log": 2, "tanh": 6, "erf": 6, "sigmoid": 4}
"""Allowed error in units in the last place, where a multiply-add is rounded once."""
TWICE = 0 if HOST.architecture == "aarch64" or "fma" in HOST.features else 1
"""What is added to it where it is rounded twice."""


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", sorted(EXACT))
def test_polynomials(name: str, lanes: int) -> None:
    wide = np.linspace(-87, 88.7, 8 * 4000)
    near = np.linspace(-9, 9, 8 * 4000)
    tiny = np.logspace(-30, 0, 8 * 500)
    values = np.concatenate([wide, near, tiny, -tiny]).astype(np.float32)
    if name == "log":
        values = np.abs(values[values != 0])
        values = values[: values.size // lanes * lanes]
    with np.errstate(all="ignore"):
        expected = EXACT[name](values.astype(np.float64))
    error = np.abs(apply(name, values, lanes).astype(np.float64) - expected)
    unit = np.spacing(np.maximum(np.abs(expected), np.finfo(np.float32).tiny).astype(np.float32))
    assert (error / unit).max() <= UNITS[name] + TWICE, values[(error / unit).argmax()]


@pytest.mark.parametrize("lanes", [8, 16])
def test_ends_of_functions(lanes: int) -> None:
    ends = [np.inf, -np.inf, np.nan, 0.0, -0.0, 200, -200, 1e-45, 88.72, 88.73, -87.3, -88, 1e30,
            -1e30, 3e38, -3e38]  # fmt: skip
    ends = np.array(ends, np.float32)
    with np.errstate(all="ignore"):
        for name in sorted(EXACT):
            expected = EXACT[name](ends.astype(np.float64)).astype(np.float32)
            got = apply(name, ends, lanes)
            tiny = 1e-6 if name != "log" else 0.0
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=tiny, err_msg=name)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 7, 8, 11, 16])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_lanes_are_combined(kind: str, lanes: int) -> None:
    """One lane after the other holds what the result must show: the extreme, or a NaN."""
    size = 2 * lanes
    a, b, k = Buffer("a", (size, lanes), f32), Buffer("b", (size,), f32), Var("k")
    vector = Buffer("vector", (lanes,), f32, scope="register")
    axis = Axis("across", lanes, "R")
    fill = Loop(j, as_expr(lanes), (Store(vector, (j,), a[k, j]),), "vector")
    one = Store(b, (k,), Reduce(kind, (axis,), vector[(axis,)]))
    body = Loop(k, as_expr(size), (Allocate(vector, (fill, one)),))
    values = np.random.default_rng(0).integers(1, 3, (size, lanes)).astype(np.float32)
    values[range(lanes), range(lanes)] = {"max": 9.0, "min": -9.0}.get(kind, 2.0)
    values[range(lanes, size), range(lanes)] = np.nan
    (got,) = run_native(Program("kernel", (a,), (b,), (body,)), [values])
    combined = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[kind]
    np.testing.assert_array_equal(got, combined(values, axis=1))


# ------------------------------------------------------------------------------------- checking
def test_checked_programs_give_the_same() -> None:
    body = each(Store(y, (as_expr(11) - i,), x[i] + x[i * 5 % 12]), kind="vector")
    program = Program("kernel", (x,), (y,), (body,))
    (got,) = run_native(program, [X], checked=True)
    np.testing.assert_array_equal(got, run(program, (X,))[0])


WRONG = """
import numpy as np
from tests.build.guard_pages import GuardedMemory
from tests.codegen.running import run_native
from tests.codegen.test_emit import X, Loop, Program, Store, as_expr, i, x, y
body = Loop(i, as_expr(12), (Store(y, (i,), x[i + {shift}]),), "{kind}")
run_native(Program("kernel", (x,), (y,), (body,)), [X], checked=True)
"""


@pytest.mark.parametrize(("shift", "kind", "at"), [(1, "serial", 12), (-2, "vector", -2)])
def test_a_wrong_access_is_told(shift: int, kind: str, at: int) -> None:
    code = WRONG.format(shift=shift, kind=kind)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode < 0
    assert (
        f"whet: kernel kernel: 'x' has extent 12 along axis 0 and is accessed at {at}"
        in done.stderr
    )
