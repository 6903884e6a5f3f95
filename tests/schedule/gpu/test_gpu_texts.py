"""The CUDA text of sketches, run on this CPU (`tools.cuda_on_cpu`), means their tasks."""

from __future__ import annotations

from functools import partial

import pytest

from tests.schedule.gpu.lockstep_kernels import (
    TARGET,
    candidates,
    check_candidates,
    check_kernel,
)
from tests.schedule.gpu.random_networks import Grower
from tests.schedule.gpu.test_gpu_attention import CASES, LEAVES, TOLERANCE, case_of, fitted
from tests.schedule.gpu.test_gpu_plans import check_network
from tests.schedule.gpu.test_gpu_reduce import TASKS as REDUCTIONS
from tests.schedule.gpu.test_gpu_rows import below_the_top, normalized, padded
from tests.schedule.small_tasks import softmax, two_outputs
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.compiled import run_text
from whet.core.dtypes import f16, f64
from whet.core.gpu import PRESETS
from whet.schedule.families.gpu_attention.lower import lower_gpu_attention
from whet.schedule.families.gpu_attention.match import AttentionTiling
from whet.schedule.families.gpu_attention.space import attention_holes
from whet.schedule.families.gpu_contraction.match import Leaf
from whet.schedule.families.gpu_reduce.sketch import GpuReduceSketch
from whet.schedule.families.gpu_rows.lower import lower_gpu_rows
from whet.schedule.families.gpu_rows.match import GpuRowTiling, find_gpu_rows
from whet.tasks.examples import make_example
from whet.tasks.task import Task

pytestmark = needs_text_runner


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("precision", ["fp32", "fp32x3", "tf32", "fp16"])
@pytest.mark.parametrize("seed", [11, 12])
def test_random_networks(seed: int, precision: str, preset: str) -> None:
    run = partial(run_text, target=PRESETS[preset])
    check_network(Grower(seed).network(4), precision, seed, preset, run)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
@pytest.mark.parametrize("case", ["prime", "long", "tokens, odd", "turned keys, odd"])
def test_attention(case: str, leaf: Leaf) -> None:
    assert case in CASES
    task = case_of(case, leaf).task()
    form, example = fitted(task, leaf), make_example(task, 1)
    for holes in candidates(attention_holes(form, TARGET), 2, seed=7):
        kernel = lower_gpu_attention(form, AttentionTiling(**holes), "kernel")
        check_kernel(kernel, task, example, TOLERANCE.get(leaf), run_text)


ROWS: dict[str, tuple[Task, tuple[tuple[int, int, int], ...]]] = {
    # threads of a row, elements at once, threads of a block
    "LayerNorm": (normalized(5, (768,), known=True, added=True), ((192, 4, 192), (96, 4, 192))),
    "rows of a block": (normalized(21, (100,), known=True), ((8, 4, 64), (32, 2, 128))),
    "prime": (softmax(7, 131), ((32, 1, 64), (160, 1, 160), (64, 1, 128))),
    "one row": (softmax(1, 997), ((256, 1, 256), (32, 1, 32))),
    "short": (softmax(70, 3), ((4, 1, 64),)),
    "long": (softmax(2, 9000), ((64, 4, 64), (256, 1, 256))),
    "halves": (normalized(6, (136,), f16, known=True), ((16, 8, 64), (64, 4, 128))),
    "wide numbers": (normalized(3, (130,), f64), ((32, 2, 64), (96, 1, 96))),
    "several results": (two_outputs(5, 66), ((16, 2, 64), (64, 1, 64))),
    "whole numbers": (below_the_top(5, 70), ((16, 1, 64), (96, 1, 96))),
    "guarded": (padded(4, 30), ((16, 1, 64), (32, 2, 32))),
}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, preset: str) -> None:
    task, tilings = ROWS[name]
    form = find_gpu_rows(task)
    assert form is not None
    example, run = make_example(task, 1), partial(run_text, target=PRESETS[preset])
    for lanes, width, threads in tilings:
        kernel = lower_gpu_rows(form, GpuRowTiling(lanes, width, threads), "kernel")
        check_kernel(kernel, task, example, run=run)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    check_candidates(GpuReduceSketch(), REDUCTIONS[name], count=4, run=run_text)
