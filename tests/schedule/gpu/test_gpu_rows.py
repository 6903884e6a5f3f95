"""Stages along rows on a GPU: rows in registers, long rows, several results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import (
    TARGET,
    candidates,
    cheapest,
    check_candidates,
    check_kernel,
    operator_samples,
    planned_tasks,
    sample_task,
)
from tests.schedule.small_tasks import argmax, chain, make_task, softmax, two_outputs
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.compiled import run_text
from whet.core.dtypes import DType, f16, f32, f64, i64
from whet.core.gpu import PRESETS
from whet.core.types import Shape
from whet.ir.expr import Expr, Read, call, const
from whet.ir.lockstep import run_threads
from whet.ir.program import Buffer, walk
from whet.ir.tensor import (
    compute,
    guarded_read,
    max_,
    placeholder,
    reduce_axis,
    subexpressions,
    sum_,
)
from whet.ir.threads import WARP, AwaitInputs, Barrier, Exchange, thread_nests
from whet.ops import REGISTRY
from whet.ops.base import Sample
from whet.schedule.families.gpu_rows.lower import lower_gpu_rows
from whet.schedule.families.gpu_rows.match import GpuRowTiling
from whet.schedule.families.gpu_rows.sketch import GpuRowsSketch
from whet.schedule.program.triggers import NEVER
from whet.tasks.examples import make_example
from whet.tasks.task import Task

SKETCH = GpuRowsSketch()
SAMPLES = operator_samples()


def normalized(
    rows: int, shape: Shape, dtype: DType = f32, *, known: bool = False, added: bool = False
) -> Task:
    """Elements less their mean, over the root of their variance, scaled and moved.

    Factors may be known when the kernel is built; another tensor may be added to the result.
    """
    x = placeholder((rows, *shape), dtype, "x")
    scale, bias = placeholder(shape, dtype, "g"), placeholder(shape, dtype, "h")
    rest = placeholder((rows, *shape), dtype, "r")
    count = const(float(np.prod(shape)), dtype)

    def over(value: Callable[..., Expr]) -> Expr:
        axes = [reduce_axis(n, f"k{i}") for i, n in enumerate(shape)]
        return sum_(value(*axes), *axes) / count

    mean = compute((rows,), lambda i: over(lambda *k: x[(i, *k)]), "mean")

    def squared(i: Expr, *k: Expr) -> Expr:
        apart = x[(i, *k)] - mean[(i,)]
        return apart * apart

    variance = compute((rows,), lambda i: over(lambda *k: squared(i, *k)), "variance")

    def body(i: Expr, *k: Expr) -> Expr:
        root = call("sqrt", variance[(i,)] + const(1e-3, dtype))
        found = (x[(i, *k)] - mean[(i,)]) / root * scale[k] + bias[k]
        return found + rest[(i, *k)] if added else found

    constants = (scale, bias) if known else ()
    return make_task(compute((rows, *shape), body, "y"), constants=constants)


def log_softmax(rows: int, n: int) -> Task:
    x = placeholder((rows, n), f32, "x")
    a, b = reduce_axis(n, "a"), reduce_axis(n, "b")
    top = compute((rows, 1), lambda i, j: max_(x[i, a], a), "top")
    total = compute((rows, 1), lambda i, j: sum_(call("exp", x[i, b] - top[i, 0]), b), "total")
    return make_task(
        compute((rows, n), lambda i, j: x[i, j] - top[i, 0] - call("log", total[i, 0]), "y")
    )


def padded(rows: int, n: int) -> Task:
    """Rows with zeros before and after: reads that a condition guards stay under it."""
    x = placeholder((rows, n), f32, "x")
    k = reduce_axis(n + 2, "k")
    total = compute((rows,), lambda i: sum_(guarded_read(x, (i, k - 1), 0), k), "total")
    y = compute((rows, n + 2), lambda i, j: guarded_read(x, (i, j - 1), 0) - total[(i,)], "y")
    return make_task(y)


def looked_up(rows: int, n: int) -> Task:
    """Rows of a table, less the largest of each."""
    table, at = placeholder((5, n), f32, "table"), placeholder((rows,), i64, "at")
    k = reduce_axis(n, "k")
    top = compute((rows,), lambda i: max_(table[at[(i,)], k], k), "top")
    return make_task(compute((rows, n), lambda i, j: table[at[(i,)], j] - top[(i,)], "y"))


def below_the_top(rows: int, n: int, dtype: DType = i64) -> Task:
    """How far elements are from the largest of their row."""
    x, k = placeholder((rows, n), dtype, "x"), reduce_axis(n, "k")
    top = compute((rows,), lambda i: max_(x[i, k], k), "top")
    return make_task(compute((rows, n), lambda i, j: top[(i,)] - x[i, j], "y"))


def apart(rows: int, n: int) -> Task:
    """A softmax whose rows lie side by side."""
    task = softmax(rows, n)
    buffers = {t: Buffer(b.name, b.shape, b.dtype, (1, rows)) for t, b in task.buffers.items()}
    return Task(task.outputs, buffers, task.constants, {})


def reversed_rows(rows: int, n: int) -> Task:
    x, k = placeholder((rows, n), f32, "x"), reduce_axis(n, "k")
    t = compute((rows, n), lambda i, j: x[i, j] * 2.0, "t")
    s = compute((rows,), lambda i: sum_(t[i, k], k), "s")
    return make_task(compute((rows, n), lambda i, j: t[i, n - 1 - j] + s[(i,)], "y"))


TASKS: dict[str, Task] = {
    "softmax": softmax(9, 52),
    "odd": softmax(5, 37),
    "short": softmax(70, 3),
    "long": softmax(3, 5000),
    "one row": softmax(1, 1000),
    "log_softmax": log_softmax(6, 48),
    "normalized": normalized(7, (96,)),
    "known factors": normalized(5, (96,), known=True, added=True),
    "two axes": normalized(3, (6, 10)),
    "whole warps": normalized(3, (5 * 32 * 4,), known=True),
    "wide numbers": normalized(4, (192,), f64),
    "whole numbers": below_the_top(6, 96),
    "several results": two_outputs(6, 40),
    "guarded": padded(4, 30),
    "looked up": looked_up(6, 24),
    "apart": apart(12, 40),
}


@pytest.mark.parametrize("name", TASKS)
def test_candidates_mean_the_task(name: str) -> None:
    check_candidates(SKETCH, TASKS[name], count=12)


def test_halves() -> None:
    check_candidates(SKETCH, normalized(4, (64,), f16), count=8)


@pytest.mark.parametrize("sample", [s for _, s in SAMPLES], ids=[name for name, _ in SAMPLES])
def test_operators_that_fit(sample: Sample) -> None:
    task = sample_task(sample)
    if task.outputs and all(t.type.size for t in task.outputs):
        form = SKETCH.fits(task)
        if form is not None:
            check_candidates(SKETCH, task, count=3)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm"])
def test_norms_as_they_are_planned(name: str) -> None:
    for sample in REGISTRY[name].samples():
        found = [t for t in planned_tasks(sample) if SKETCH.fits(t) is not None]
        assert found
        for task in found:
            check_candidates(SKETCH, task, count=4)


@pytest.mark.parametrize(("lanes", "barriers"), [(16, 0), (32, 0), (64, 1), (96, 1), (256, 1)])
def test_a_reduction_needs_a_barrier_where_a_row_has_several_warps(
    lanes: int, barriers: int
) -> None:
    form = SKETCH.fits(TASKS["softmax"])
    assert form is not None
    threads = max(lanes, 128) if lanes != 96 else 192
    kernel = lower_gpu_rows(form, GpuRowTiling(lanes, 1, threads), "kernel")
    (nest,) = thread_nests(kernel.program)
    scopes = [s.scope for s in walk(nest.body) if isinstance(s, Barrier)]
    assert scopes == ["block"] * barriers * 2
    steps = [s for s in walk(nest.body) if isinstance(s, Exchange)]
    assert len(steps) == 2 * min(lanes.bit_length() - 1, 5)


def loads_before_and_behind(task: Task, tiling: GpuRowTiling) -> tuple[list[str], list[str]]:
    """The inputs that a kernel reads before it awaits them, and behind, in order."""
    form = SKETCH.fits(task)
    assert form is not None
    kernel = lower_gpu_rows(form, tiling, "kernel")
    (nest,) = thread_nests(kernel.program)
    found: tuple[list[str], list[str]] = ([], [])
    behind = 0
    for stmt in walk(nest.body):
        behind |= isinstance(stmt, AwaitInputs)
        reads = (e for e in subexpressions(*stmt.expressions) if isinstance(e, Read))
        found[behind].extend(e.tensor.name for e in reads if e.tensor in kernel.program.inputs)
    return found


def test_constants_are_read_before_inputs_are_awaited_and_the_rest_first_of_all() -> None:
    task = normalized(4, (768,), known=True, added=True)
    early, first = loads_before_and_behind(task, GpuRowTiling(192, 4, 192))
    assert (early, first) == (["g", "h"], ["x", "r"])
    # Registers do not hold all: what several stages read, then what is constant.
    early, first = loads_before_and_behind(task, GpuRowTiling(32, 4, 64))
    assert (early, first) == (["g", "h"], ["x", "r"])


def test_axes_of_one_row_are_no_variables() -> None:
    """Reads that differ in them alone are one read."""
    x, k = placeholder((1, 6, 40), f32, "x"), reduce_axis(40, "k")
    top = compute((1, 6), lambda b, i: max_(x[b, i, k], k), "top")
    task = make_task(compute((1, 6, 40), lambda b, i, j: x[0, i, j] - top[b, i], "y"))
    form = SKETCH.fits(task)
    assert form is not None
    assert [str(e) for e in form.shared] == ["x[row1 * 40 + e0]"]
    check_candidates(SKETCH, task, count=4)


@pytest.mark.parametrize("lanes", [8, 32, 64, 96])
def test_no_number_is_lost_and_none_is_made_up(lanes: int) -> None:
    """NaN in any lane is the largest of its row, and of no other."""
    task = softmax(6, 96)
    form = SKETCH.fits(task)
    assert form is not None
    kernel = lower_gpu_rows(form, GpuRowTiling(lanes, 1, max(lanes, 32)), "kernel")
    x = np.zeros((6, 96), np.float32)
    x[1, 37], x[3, 0], x[4, 95] = np.nan, np.nan, np.inf
    (y,) = run_threads(kernel.program, [x.reshape(-1)])
    lost = np.isnan(y.reshape(6, 96)).all(-1)
    assert lost.tolist() == [False, True, False, True, True, False]
    np.testing.assert_allclose(y.reshape(6, 96)[~lost], 1 / 96, rtol=1e-6)


def test_what_several_stages_read_is_read_once() -> None:
    form = SKETCH.fits(TASKS["normalized"])
    assert form is not None
    assert [str(e) for e in form.shared] == ["x[row0 * 96 + e0]"]
    text = str(lower_gpu_rows(form, GpuRowTiling(32, 1, 64), "kernel").program)
    assert text.count("= x[") == 1
    guarded = SKETCH.fits(TASKS["guarded"])
    assert guarded is not None
    assert guarded.shared == ()


def test_long_rows_are_read_again() -> None:
    task = softmax(3, 5000)
    form = SKETCH.fits(task)
    assert form is not None
    kernel = lower_gpu_rows(form, GpuRowTiling(64, 4, 64), "kernel")
    assert "kept" not in str(kernel.program)
    check_kernel(kernel, task, make_example(task))


def test_what_does_not_fit() -> None:
    assert SKETCH.fits(argmax(4, 9)) is None
    assert SKETCH.fits(chain(4, 9)) is None
    assert SKETCH.fits(reversed_rows(4, 9)) is None


def test_program(golden: Callable[[str], None]) -> None:
    form = SKETCH.fits(softmax(6, 300))
    assert form is not None
    golden(str(lower_gpu_rows(form, GpuRowTiling(32, 4, 64), "kernel").program))


# -------------------------------------------------------------------------------------- prices
def test_prices_are_comparable() -> None:
    for task in TASKS.values():
        form = SKETCH.fits(task)
        assert form is not None
        space = SKETCH.space(form, TARGET, 1)
        costs = SKETCH.costs(form, TARGET, 1, space)
        assert len(costs)
        assert np.isfinite(costs).all()
        assert (costs > 700).all()
        assert len(list(candidates(space, len(costs), 0))) == len(costs)


def test_a_few_rows_of_a_network_take_little_more_than_a_launch() -> None:
    for task in (normalized(128, (768,)), softmax(12 * 128, 128)):
        form = SKETCH.fits(task)
        assert form is not None
        holes = cheapest(SKETCH, task)
        assert holes["lanes"] >= 16
        assert SKETCH.costs(form, TARGET, 1, SKETCH.space(form, TARGET, 1)).min() < 2000


def test_threads_fit_the_row() -> None:
    form = SKETCH.fits(normalized(128, (768,), known=True))
    assert form is not None
    space = SKETCH.space(form, TARGET, 1)
    columns = (space[hole].tolist() for hole in ("lanes", "width", "threads"))
    found = set(zip(*columns, strict=True))
    assert {(192, 4, 192), (96, 4, 96), (96, 4, 192), (64, 4, 64), (256, 4, 256)} <= found
    assert all(lanes % WARP == 0 or WARP % lanes == 0 for lanes, _, _ in found)
    holes = cheapest(SKETCH, normalized(128, (768,), known=True))
    assert (holes["lanes"], holes["width"]) == (192, 4)


def test_the_longer_the_row_the_more_threads_share_it() -> None:
    lanes = [cheapest(SKETCH, softmax(64, n))["lanes"] for n in (16, 256, 4096)]
    assert lanes == sorted(lanes)
    assert lanes[0] < lanes[-1]


# ------------------------------------------------------------------------------------- clusters
def both_results(rows: int, n: int) -> Task:
    """The rows over their sums, and the sums."""
    x, k = placeholder((rows, n), f32, "x"), reduce_axis(n, "k")
    total = compute((rows,), lambda i: sum_(call("abs", x[i, k]), k) + 1.0, "total")
    return make_task(compute((rows, n), lambda i, j: x[i, j] / total[(i,)], "y"), total)


LONG = {
    "softmax": softmax(2, 5000), "normalized": normalized(3, (40, 100)),
    "known": normalized(2, (4096,), known=True, added=True), "halves": normalized(2, (4100,), f16),
    "odd": normalized(2, (37, 73)), "two results": both_results(3, 3000),
}  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", LONG)
def test_blocks_of_a_cluster_share_a_row(name: str, ranks: int) -> None:
    task = LONG[name]
    form = SKETCH.fits(task)
    assert form is not None
    space = SKETCH.space(form, TARGET, 1)
    chosen = {hole: column[space["ranks"] == ranks] for hole, column in space.items()}
    example = make_example(task, 1)
    for holes in candidates(chosen, 2, seed=ranks):
        kernel = lower_gpu_rows(form, GpuRowTiling(**holes), "k")
        (nest,) = thread_nests(kernel.program)
        assert nest.blocks == ranks
        check_kernel(kernel, task, example)


@needs_text_runner
@pytest.mark.parametrize("name", ["softmax", "known", "two results"])
def test_text_of_clusters_means_the_task(name: str) -> None:
    task = LONG[name]
    form = SKETCH.fits(task)
    assert form is not None
    example = make_example(task, 2)
    for ranks in (2, 8):
        kernel = lower_gpu_rows(form, GpuRowTiling(256, 1, 256, NEVER, ranks), "k")
        check_kernel(kernel, task, example, run=run_text)


def test_few_long_rows_are_shared_and_many_are_not() -> None:
    assert cheapest(SKETCH, softmax(1, 50257))["ranks"] == 8
    assert cheapest(SKETCH, softmax(512, 768))["ranks"] == 1
    form = SKETCH.fits(softmax(1, 50257))
    assert form is not None
    assert set(SKETCH.space(form, PRESETS["cuda-sm_80"], 1)["ranks"]) == {1}
