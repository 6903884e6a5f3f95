"""The yardstick in double precision, and the values that kernels are tried on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.measure.planted import matmul_task, task_of
from whet.core.dtypes import f16, f32, i64
from whet.core.gpu import PRESETS
from whet.ir.expr import call, cast, const, select
from whet.ir.program import Buffer
from whet.ir.tensor import Placeholder, Tensor, compute, reduce_axis, sum_
from whet.measure.cuda.examples import make_trials
from whet.measure.cuda.precise import TOLERANCES, evaluate_precisely, tolerance_of
from whet.measure.cuda.prepare import Bench, Lowered, gpu_job, lower
from whet.measure.results import Candidate
from whet.schedule.space.registry import choices
from whet.tasks.examples import make_example
from whet.tasks.task import Task

X = Placeholder("x", (8,), f32)
HALF = Placeholder("h", (8,), f16)


def test_halves_are_not_rounded_on_the_way() -> None:
    k = reduce_axis(8, "k")
    square = cast(HALF[k], f32) * cast(HALF[k], f32)
    total = compute((1,), lambda i: cast(sum_(square, k), f16), "t")
    y = compute((1,), lambda i: cast(total[i], f32) * const(0.1, f32), "y")
    values = np.random.default_rng(0).standard_normal(8).astype(np.float16)
    found = evaluate_precisely([y], {HALF: values})
    assert found is not None
    assert found[0].dtype == np.float64
    want = np.sum(values.astype(np.float64) ** 2) * 0.1
    np.testing.assert_allclose(found[0], [want], rtol=1e-15)
    assert tolerance_of([y]) == TOLERANCES["f16"]


@pytest.mark.parametrize(
    ("precision", "sketch", "explained"),
    [("tf32", "gpu_tf32", "tf32"), ("tf32", "gpu_ffma", "f32"), ("fp32x3", "gpu_fp32x3", "f32"),
     ("fp32", "gpu_ffma", "f32")],
)  # fmt: skip
def test_errors_are_those_of_what_kernels_round(
    precision: str, sketch: str, explained: str
) -> None:
    target = replace(PRESETS["cuda-sm_90a"], precision=precision)
    task = matmul_task(48, 64, 40)
    bench = Bench(task, make_trials(task, make_example(task)), target)
    (chosen,) = (c for c in choices(task, target, 1, "real") if c.sketch.name == sketch)
    made = lower(Candidate(sketch, chosen.holes), bench)
    assert isinstance(made, Lowered)
    job, _ = gpu_job(made, bench)
    assert [check.allowed for check in job.checks] == ["exact", TOLERANCES[explained]]


@pytest.mark.parametrize(
    "jumping",
    [
        lambda i: call("floor", X[i]),
        lambda i: cast(cast(X[i], i64), f32),
        lambda i: select(X[i] < const(0.0, f32), X[i], const(1.0, f32)),
    ],
)
def test_there_is_no_yardstick_for_what_jumps(jumping: object) -> None:
    y = compute((8,), jumping, "y")  # type: ignore[arg-type]
    assert evaluate_precisely([y], {X: np.ones(8, np.float32)}) is None


def test_integers_may_be_compared() -> None:
    y = compute((8,), lambda i: select(i < 4, X[i], const(0.0, f32)), "y")
    found = evaluate_precisely([y], {X: np.ones(8, np.float32)})
    assert found is not None
    np.testing.assert_array_equal(found[0], [1, 1, 1, 1, 0, 0, 0, 0])


# -------------------------------------------------------------------------------------- examples
def test_kernels_are_tried_on_whole_numbers_and_on_others() -> None:
    task = matmul_task(5, 7, 6)
    whole, other = make_trials(task, make_example(task))
    assert whole.exact
    assert not other.exact
    x, w = task.inputs
    assert (whole.values[x] % 1 == 0).all()
    assert not (other.values[x] % 1 == 0).any()
    want = np.maximum(other.values[x].astype(np.float64) @ other.values[w], 0)
    np.testing.assert_allclose(other.values[task.outputs[0]], want, rtol=1e-12)


def test_elements_of_one_place_have_one_value() -> None:
    x = Placeholder("x", (3, 4), f32)
    y = compute((3, 4), lambda i, j: x[i, j] + x[i, j], "y")
    buffers: dict[Tensor, Buffer] = {
        x: Buffer("x", (3, 4), f32, strides=(0, 1)), y: Buffer("y", (3, 4), f32),
    }  # fmt: skip
    task = Task((y,), buffers, frozenset(), {})
    _, other = make_trials(task, make_example(task))
    assert (other.values[x] == other.values[x][0]).all()


def test_functions_get_numbers_that_they_have_values_for() -> None:
    y = compute((8,), lambda i: call("log", X[i]), "y")
    task = task_of((X,), y, frozenset())
    _, other = make_trials(task, make_example(task))
    assert np.isfinite(other.values[task.outputs[0]]).all()


def test_what_is_rounded_is_expected_without_rounding() -> None:
    y = compute((8,), lambda i: call("exp", X[i]), "y")
    task = task_of((X,), y, frozenset())
    whole, _ = make_trials(task, make_example(task))
    assert not whole.exact
    want = np.exp(whole.values[X].astype(np.float64))
    np.testing.assert_array_equal(whole.values[task.outputs[0]], want)


def test_what_jumps_is_tried_on_whole_numbers_alone() -> None:
    y = compute((8,), lambda i: call("round", X[i]), "y")
    task = task_of((X,), y, frozenset())
    (only,) = make_trials(task, make_example(task))
    assert only.name == "whole"
