"""The CUDA text of sketches, run on this CPU (`tools.cuda_on_cpu`), means their tasks."""

from __future__ import annotations

from functools import partial

import pytest

from tests.schedule.gpu.lockstep_kernels import TARGET, candidates, check_kernel
from tests.schedule.gpu.random_networks import Grower
from tests.schedule.gpu.test_gpu_attention import CASES, LEAVES, TOLERANCE, case_of, fitted
from tests.schedule.gpu.test_gpu_plans import check_network
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.compiled import run_text
from whet.core.gpu import PRESETS
from whet.schedule.families.gpu_attention.lower import lower_gpu_attention
from whet.schedule.families.gpu_attention.match import AttentionTiling
from whet.schedule.families.gpu_attention.space import attention_holes
from whet.schedule.families.gpu_contraction.match import Leaf
from whet.tasks.examples import make_example

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
