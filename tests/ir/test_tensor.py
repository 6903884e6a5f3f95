"""Tensor expressions: text, order of stages, and their naive evaluation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from whet.core.dtypes import DType, f16, f32, f64, i64
from whet.core.errors import WhetError
from whet.core.types import Array
from whet.ir.evaluate import evaluate
from whet.ir.expr import Axis, as_expr, call, cast, const, select
from whet.ir.tensor import (
    Compute,
    broadcast_read,
    compute,
    describe,
    guarded_read,
    max_,
    min_,
    placeholder,
    prod_,
    producers,
    reduce,
    reduce_axis,
    stages,
    sum_,
)

A = placeholder((3, 4), f64, "a")
B = placeholder((4, 5), f64, "b")


@pytest.fixture
def data() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return rng.normal(size=A.shape), rng.normal(size=B.shape)


def softmax() -> Compute:
    k, l = reduce_axis(4, "k"), reduce_axis(4, "l")  # noqa: E741 - the usual name
    top = compute((3,), lambda i: max_(A[i, k], k), "top")
    e = compute((3, 4), lambda i, j: call("exp", A[i, j] - top[i]), "e")
    total = compute((3,), lambda i: sum_(e[i, l], l), "total")
    return compute((3, 4), lambda i, j: e[i, j] / total[i], "y")


def test_matmul_is_numpys(data: tuple[Array, Array]) -> None:
    k = reduce_axis(4, "k")
    y = compute((3, 5), lambda i, j: sum_(A[i, k] * B[k, j], k), "y")
    (result,) = evaluate([y], dict(zip((A, B), data)))
    np.testing.assert_allclose(result, data[0] @ data[1])


def test_stages_come_producers_first(
    data: tuple[Array, Array], golden: Callable[[str], None]
) -> None:
    y = softmax()
    assert [t.name for t in stages([y])] == ["a", "top", "e", "total", "y"]
    assert [t.name for t in producers(y)] == ["e", "total"]
    (result,) = evaluate([y], {A: data[0]})
    e = np.exp(data[0] - data[0].max(1, keepdims=True))
    np.testing.assert_allclose(result, e / e.sum(1, keepdims=True))
    golden(describe(y))


@pytest.mark.parametrize(
    ("reducer", "meaning"), [(sum_, np.sum), (max_, np.max), (min_, np.min), (prod_, np.prod)]
)
def test_reductions(
    data: tuple[Array, Array], reducer: Callable[..., Compute], meaning: Callable[[Array], Array]
) -> None:
    k, n = reduce_axis(3, "k"), reduce_axis(4, "n")
    y = compute((), lambda: reducer(A[k, n], k, n), "y")
    (result,) = evaluate([y], {A: data[0]})
    np.testing.assert_allclose(result, meaning(data[0]))
    assert result.shape == ()


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_arg_reductions_give_the_first_position(kind: str) -> None:
    k = reduce_axis(4, "k")
    y = compute((3,), lambda i: reduce(kind, A[i, k], k), "y")
    values = np.array([[1.0, 3, 3, 1], [0, 0, 0, 0], [5, 4, 3, 2]])
    (result,) = evaluate([y], {A: values})
    assert y.dtype == i64
    assert result.tolist() == getattr(np, kind)(values, axis=1).tolist()


def test_padding_reads_no_element_outside(data: tuple[Array, Array]) -> None:
    y = compute((5, 6), lambda i, j: guarded_read(A, (i - 1, j - 1), 7.0), "y")
    (result,) = evaluate([y], {A: data[0]})
    np.testing.assert_array_equal(result, np.pad(data[0], 1, constant_values=7.0))


def test_broadcasting_reads(data: tuple[Array, Array]) -> None:
    row = placeholder((1, 4), f64, "row")
    y = compute((2, 3, 4), lambda *i: broadcast_read(A, i) + broadcast_read(row, i), "y")
    (result,) = evaluate([y], {A: data[0], row: data[0][:1]})
    np.testing.assert_array_equal(result, np.broadcast_to(data[0] + data[0][:1], (2, 3, 4)))


def test_extents_of_zero() -> None:
    empty = placeholder((0, 3), f32, "empty")
    k = reduce_axis(0, "k")
    y = compute((3,), lambda i: sum_(empty[k, i], k), "y")
    (result,) = evaluate([y], {empty: np.zeros((0, 3), np.float32)})
    assert result.tolist() == [0.0, 0.0, 0.0]


def test_a_read_outside_is_an_error(data: tuple[Array, Array]) -> None:
    y = compute((3, 4), lambda i, j: A[i, j + 1], "y")
    with pytest.raises(WhetError, match=r"WH1302 a\[i, j \+ 1\] leaves the extent 4 of 'a'"):
        evaluate([y], {A: data[0]})


def test_a_missing_array_is_an_error() -> None:
    with pytest.raises(WhetError, match="WH1203 no array was given for 'a'"):
        evaluate([softmax()], {})


def test_only_reduction_axes_are_reduced() -> None:
    with pytest.raises(WhetError, match="WH1301 only axes of role R can be reduced"):
        sum_(A[as_expr(0), as_expr(0)], Axis("i", 3))


def test_equal_tensor_expressions_are_one_object() -> None:
    assert softmax() is softmax()


def test_values_narrow_to_the_declared_type() -> None:
    x = placeholder((4,), f32, "x")
    y = compute((4,), lambda i: select(x[i] > 0.0, x[i], x[i] * 0.5), "y")
    (result,) = evaluate([y], {x: np.array([-1, 0, 1, 2], np.float32)})
    assert result.dtype == np.float32
    assert result.tolist() == [-0.5, 0.0, 1.0, 2.0]


def test_literals_alone_say_of_which_type_they_are() -> None:
    n = placeholder((), i64, "n")

    def picked(dtype: DType) -> str:
        half, one = const(0.5, dtype), const(1.0, dtype)
        return describe(compute((), lambda: select(n[()] > 0, half, one), "y")).splitlines()[-1]

    assert picked(f32) == "y[] = select(n[] > 0, 0.5, 1.0)"
    assert picked(f64) == "y[] = select(n[] > 0, 0.5, 1.0) as f64"
    assert picked(f16).endswith(" as f16")


def test_what_a_formula_reads_shows_its_type() -> None:
    x = placeholder((), f64, "x")
    half, one = const(0.5, f64), const(1.0, f64)
    for body in (x[()] * half, select(x[()] > half, x[()], one), select(x[()] > one, half, x[()])):
        assert " as " not in describe(Compute("y", (), body))
    inside = select(select(x[()] > half, half, one) > one, x[()], half)
    assert describe(compute((), lambda: inside, "y")).endswith(" as f64")
    hidden = cast(select(x[()] > half, half, one), f32)
    assert describe(compute((), lambda: hidden, "y")).endswith(" as f64")
