"""Inputs that kernels are tried on, what they must give, and keys of tasks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from whet.core.dtypes import f16, f32, i64
from whet.ir.evaluate import evaluate
from whet.ir.expr import call, cast, const, select
from whet.ir.program import Buffer
from whet.ir.tensor import (
    Compute,
    Placeholder,
    Tensor,
    compute,
    guarded_read,
    max_,
    reduce_axis,
    sum_,
)
from whet.tasks.examples import LARGEST, is_exact, make_example
from whet.tasks.products import evaluate_fast
from whet.tasks.task import Border, Task

ZERO = const(0.0, f32)


def task_of(
    *outputs: Compute,
    constants: tuple[Tensor, ...] = (),
    borders: dict[Tensor, Border] | None = None,
    strides: dict[Tensor, tuple[int, ...]] | None = None,
) -> Task:
    bare = Task(outputs, {}, frozenset(), {})
    buffers = {
        t: Buffer(t.name, t.shape, t.dtype, (strides or {}).get(t))
        for t in (*bare.inputs, *outputs)
    }
    return Task(outputs, buffers, frozenset(constants), borders or {})


def convolution(size: int, channels: int, window: int = 3, stride: int = 1) -> Task:
    """relu of a padded convolution, channels last."""
    x = Placeholder("x0", (1, size, size, channels), f32)
    w = Placeholder("x1", (window, window, channels, 2 * channels), f32)
    a, b = reduce_axis(window, "k0"), reduce_axis(window, "k1")
    c = reduce_axis(channels, "c")
    out = (size - 1) // stride + 1

    def element(i: object, l: object, m: object, j: object) -> object:  # noqa: E741
        at = (i, l * stride + a - 1, m * stride + b - 1, c)  # type: ignore[operator]
        total = sum_(guarded_read(x, at, 0.0) * w[a, b, c, j], a, b, c)  # type: ignore[arg-type, index]
        return call("max", total, ZERO)

    y = compute((1, out, out, 2 * channels), element, "s0")  # type: ignore[arg-type]
    return task_of(y, constants=(w,))


def matmul(rows: int, depth: int, columns: int) -> Task:
    x, w = Placeholder("x0", (rows, depth), f32), Placeholder("x1", (depth, columns), f32)
    k = reduce_axis(depth, "k")
    return task_of(compute((rows, columns), lambda i, j: sum_(x[i, k] * w[k, j], k), "s0"))


def softmax(rows: int, columns: int) -> Task:
    x = Placeholder("x0", (rows, columns), f32)
    k, n = reduce_axis(columns, "k"), reduce_axis(columns, "n")
    top = compute((rows,), lambda i: max_(x[i, k], k), "s0")
    e = compute((rows, columns), lambda i, j: call("exp", x[i, j] - top[i]), "s1")
    return task_of(compute((rows, columns), lambda i, j: e[i, j] / sum_(e[i, n], n), "s2"))


@pytest.mark.parametrize(
    "task",
    [convolution(5, 2), convolution(6, 3, stride=2), matmul(4, 5, 6), softmax(3, 7)],
    ids=["conv", "strided", "matmul", "softmax"],
)
def test_expected_results_are_those_of_the_definition(task: Task) -> None:
    example = make_example(task, seed=3)
    (want,) = evaluate(task.outputs, example.inputs)
    (got,) = example.outputs
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.ptp(want) > 0


def test_products_under_a_condition_are_evaluated_by_definition() -> None:
    """Under the condition alone the sum stays inside x."""
    x = Placeholder("x0", (4, 3), f32)
    k = reduce_axis(3, "k")
    y = compute(
        (6,), lambda i: select(i < 4, sum_(x[i, k] * x[i, k], k), ZERO), "s0"
    )  # fmt: skip
    rng = np.random.default_rng(0)
    given = {x: rng.integers(-3, 4, (4, 3)).astype(np.float32)}
    (got,) = evaluate_fast([y], given)
    np.testing.assert_array_equal(got, [*(given[x] ** 2).sum(axis=1), 0, 0])


def test_exactness_follows_from_the_expression() -> None:
    assert is_exact(matmul(4, 1000, 4))
    assert is_exact(convolution(5, 2))
    assert not is_exact(softmax(2, 3))
    # 9 * depth must fit into the 24 bits of single precision.
    depth = 2**24 // LARGEST**2
    assert is_exact(matmul(1, depth, 1))
    assert not is_exact(matmul(1, depth + 1, 1))


def test_fractions_and_narrow_types_are_not_exact() -> None:
    x = Placeholder("x0", (8,), f32)
    assert not is_exact(task_of(compute((8,), lambda i: x[i] * const(0.5, f32), "s0")))
    assert is_exact(task_of(compute((8,), lambda i: x[i] * const(2.0, f32), "s0")))
    root = task_of(
        compute((8,), lambda i: select(call("exp", x[i]) < const(2.0, f32), x[i], ZERO), "s0")
    )
    assert not is_exact(root)
    h = Placeholder("x0", (8,), f16)
    k = reduce_axis(8, "k")
    many = task_of(compute((8,), lambda i: cast(sum_(cast(h[k], f32), k) * 1000.0, f16), "s0"))
    assert not is_exact(many)


def test_roots_get_numbers_that_have_one() -> None:
    x = Placeholder("x0", (50,), f32)
    example = make_example(task_of(compute((50,), lambda i: call("log", x[i]), "s0")))
    assert np.isfinite(example.outputs[0]).all()


def test_indices_from_an_input_stay_inside() -> None:
    x, at = Placeholder("x0", (2, 5), f32), Placeholder("x1", (7,), i64)
    task = task_of(compute((7, 5), lambda i, j: x[at[i], j], "s0"))
    example = make_example(task)
    rows = example.inputs[at]
    np.testing.assert_array_equal(example.outputs[0], example.inputs[x][rows])


def test_elements_that_share_memory_are_equal() -> None:
    x = Placeholder("x0", (4, 3), f32)
    y = compute((4, 3), lambda i, j: x[i, j] + x[i, j], "s0")
    rows = make_example(task_of(y, strides={x: (0, 1)})).inputs[x]
    assert (rows == rows[:1]).all()
    windows = make_example(task_of(y, strides={x: (1, 1)})).inputs[x]
    memory = np.concatenate([windows[:, 0], windows[-1, 1:]])
    np.testing.assert_array_equal(as_strided(memory, (4, 3), (4, 4)), windows)


# ------------------------------------------------------------------------------------- keys
def test_the_class_of_a_task_forgets_extents() -> None:
    assert convolution(56, 64).class_key == convolution(14, 20).class_key
    assert convolution(56, 64).key != convolution(14, 20).key
    assert matmul(4, 5, 6).class_key == matmul(128, 64, 1000).class_key


def test_the_class_of_a_task_knows_structure_and_layout() -> None:
    plain = convolution(14, 16)
    classes = {
        plain.class_key,
        convolution(14, 16, stride=2).class_key,
        matmul(14, 16, 16).class_key,
        softmax(14, 16).class_key,
        task_of(*plain.outputs).class_key,
        task_of(
            *plain.outputs,
            constants=tuple(plain.constants),
            strides={plain.inputs[0]: (3136, 1, 14, 196)},
        ).class_key,
        task_of(
            *plain.outputs,
            constants=tuple(plain.constants),
            borders={plain.inputs[0]: ((0, 0), (1, 1), (1, 1), (0, 0))},
        ).class_key,
    }
    assert len(classes) == 7


def test_the_text_tells_what_the_key_stands_for() -> None:
    task = matmul(4, 5, 6)
    assert "sum(x0[i, k] * x1[k, j] for k in 5)" in task.text
    assert "x0 (5, 1) 0" in task.text
