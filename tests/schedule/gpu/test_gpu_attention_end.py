"""What follows attention, as a stage of its own, is computed where its last sum is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.schedule.gpu.attention_tasks import Attention
from tests.schedule.gpu.lockstep_kernels import TARGET, candidates, check_kernel
from whet.core.dtypes import f16, f32
from whet.ir.expr import Axis, Expr, Read, call, cast
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Tensor, compute, placeholder
from whet.schedule.families.attention.match import find_products
from whet.schedule.families.gpu_attention.end import with_end
from whet.schedule.families.gpu_attention.sketch import GPU_ATTENTION
from whet.schedule.families.gpu_contraction.match import FFMA, MMA, TF32, Leaf
from whet.schedule.families.gpu_running import space as running_space
from whet.schedule.families.gpu_running.sketch import GPU_RUNNING_ATTENTION
from whet.tasks.examples import make_example
from whet.tasks.task import Task

MADE = Attention(2, 33, 40, 16, 20, dtype=f16)
RESIDUAL = placeholder((2, 33, 20), f32, "residual")


def followed(made: Attention, body: Callable[[Compute, Axis, Axis, Axis], Expr]) -> Task:
    """Attention, and another stage that reads its result."""
    task = made.task()
    (y,) = task.outputs
    end = compute(y.shape, lambda i, j, k: body(y, i, j, k), "end")
    buffers: dict[Tensor, Buffer] = {t: b for t, b in task.buffers.items() if t is not y}
    buffers |= {end: Buffer("end", end.shape, end.dtype)}
    found = Task((end,), buffers, task.constants, {})
    if RESIDUAL in found.inputs:
        buffers[RESIDUAL] = Buffer("residual", RESIDUAL.shape, f32)
    return found


ENDS: dict[str, Callable[[Compute, Axis, Axis, Axis], Expr]] = {
    "another type": lambda y, i, j, k: cast(y[i, j, k], f32),
    "a residual": lambda y, i, j, k: call("max", cast(y[i, j, k], f32) + RESIDUAL[i, j, k], 0.0),
}


@pytest.mark.parametrize("leaf", [MMA, TF32, FFMA], ids=lambda leaf: leaf.name)
@pytest.mark.parametrize("sketches", [GPU_ATTENTION, GPU_RUNNING_ATTENTION],
                         ids=["whole rows", "running"])  # fmt: skip
@pytest.mark.parametrize("end", ENDS)
def test_the_end_is_part_of_the_kernel(
    end: str, sketches: tuple, leaf: Leaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_space, "LEAST_KEYS", 1)
    task = followed(MADE if leaf is MMA else replace(MADE, dtype=f32), ENDS[end])
    assert find_products(task) is None or find_products(task).second is None  # type: ignore[union-attr]
    (sketch,) = (s for s in sketches if s.leaf is leaf)
    form, example = sketch.fits(task), make_example(task, 1)
    target = replace(TARGET, precision=leaf.precision)
    chosen = list(candidates(sketch.space(form, target, 1), 2, seed=1))
    assert chosen
    for holes in chosen:
        tolerance = 1e-4 if leaf is FFMA else 3e-3  # of what weights are rounded to
        check_kernel(sketch.lower(form, holes, "k"), task, example, tolerance)


def test_only_what_is_computed_at_its_own_place_is_joined() -> None:
    assert with_end(MADE.task()) is None
    assert with_end(followed(MADE, ENDS["a residual"])) is not None
    moved = followed(replace(MADE, rows=20), lambda y, i, j, k: cast(y[i, k, j], f32))
    assert with_end(moved) is None
    twice = followed(replace(MADE, rows=20), lambda y, i, j, k: y[i, j, k] + y[i, k, j])
    assert with_end(twice) is None


def test_a_sum_that_others_read_stays() -> None:
    task = followed(MADE, ENDS["another type"])
    (end,) = task.outputs
    (y,) = (e.tensor for e in [end.body.value] if isinstance(e, Read))  # type: ignore[attr-defined]
    both = replace(task, buffers={**task.buffers, y: Buffer("y", y.shape, f16)})
    assert with_end(both) is None
