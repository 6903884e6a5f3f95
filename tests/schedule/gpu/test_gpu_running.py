"""Attention with a running maximum: every candidate means the task, for any number of keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.gpu.attention_tasks import Attention
from tests.schedule.gpu.lockstep_kernels import TARGET, candidates, check_kernel
from tests.schedule.gpu.test_gpu_attention import CASES as SHORT, LEAVES, TOLERANCE
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.compiled import run_text
from whet.codegen.cuda.launch import launches_of
from whet.core.dtypes import bf16, f16, f32
from whet.core.gpu import PRESETS
from whet.core.types import Array
from whet.graph.graph import Graph, apply, make_input
from whet.graph.passes import expand_composites
from whet.ir.expr import call, const
from whet.ir.program import walk
from whet.ir.tensor import Placeholder
from whet.ir.threads import AwaitInputs, LaunchNext, thread_nests
from whet.ops import REGISTRY
from whet.ops.movement import Transpose
from whet.schedule.families.gpu_attention.match import AttentionTiling
from whet.schedule.families.gpu_contraction.match import FFMA, FP32X3, MMA, TF32, Leaf
from whet.schedule.families.gpu_running import space as space_module
from whet.schedule.families.gpu_running.lower import lower_running_attention
from whet.schedule.families.gpu_running.match import RunningAttention, find_running_attention
from whet.schedule.families.gpu_running.price import running_costs
from whet.schedule.families.gpu_running.sketch import GPU_RUNNING_ATTENTION
from whet.schedule.families.gpu_running.space import is_legal, running_holes, shared_bytes
from whet.schedule.gpu_prices import GpuPrice
from whet.schedule.space.registry import allowed_sketches
from whet.tasks.examples import Example, make_example
from whet.tasks.plan import plan_graph
from whet.tasks.steps import Step
from whet.tasks.task import Task

TILINGS = {False: (32, 32, 2, 4, 2, 4, 2, 2), True: (32, 32, 16, 16, 16, 16, 2, 0)}
"""For threads and for warps."""
CASES = {name: replace(made, keys=made.keys + 40) for name, made in SHORT.items()
         if name not in ("wide values", "square")} | {
    "whole tiles": Attention(2, 64, 96, 32, 32), "rows of 128": Attention(1, 130, 70, 16, 16),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_module, "LEAST_KEYS", 1)


def fitted(made: Attention, leaf: Leaf) -> tuple[RunningAttention, Task]:
    task = (replace(made, dtype=f16) if leaf is MMA else made).task()
    form = find_running_attention(task, leaf)
    assert form is not None
    return form, task


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
@pytest.mark.parametrize("case", CASES)
def test_any_candidate_means_the_task(case: str, leaf: Leaf) -> None:
    form, task = fitted(CASES[case], leaf)
    example = make_example(task, 1)
    chosen = list(candidates(running_holes(form, TARGET), 2, seed=len(case)))
    assert chosen
    for holes in chosen:
        kernel = lower_running_attention(form, AttentionTiling(**holes), "kernel")
        check_kernel(kernel, task, example, TOLERANCE.get(leaf))


@needs_text_runner
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
@pytest.mark.parametrize("case", ["whole tiles", "added mask", "causal", "tokens, odd"])
def test_text_means_the_task(case: str, leaf: Leaf) -> None:
    form, task = fitted(replace(CASES[case], keys=300), leaf)
    example = make_example(task, 2)
    for holes in candidates(running_holes(form, TARGET), 2, seed=len(case)):
        kernel = lower_running_attention(form, AttentionTiling(**holes), "kernel")
        check_kernel(kernel, task, example, TOLERANCE.get(leaf), run_text)


@pytest.mark.parametrize("keys", [1, 31, 32, 33, 64, 65, 97])
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("leaf", [FFMA, MMA], ids=lambda leaf: leaf.name)
def test_any_number_of_tiles(leaf: Leaf, stages: int, keys: int) -> None:
    """Fewer than are under way at once, and one that is hardly begun."""
    form, task = fitted(Attention(1, 40, max(keys, 2), 16, 16), leaf)
    tiling = replace(AttentionTiling(*TILINGS[leaf.is_matrix]), stages=stages)
    kernel = lower_running_attention(form, tiling, "kernel")
    check_kernel(kernel, task, make_example(task, 3), TOLERANCE.get(leaf))


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_halves(dtype: object) -> None:
    made = replace(CASES["added mask"], dtype=bf16 if dtype is bf16 else f16)
    task = made.task()
    form = find_running_attention(task, MMA)
    assert form is not None
    for holes in candidates(running_holes(form, TARGET), 2, seed=2):
        kernel = lower_running_attention(form, AttentionTiling(**holes), "kernel")
        check_kernel(kernel, task, make_example(task, 2))


# --------------------------------------------------------------------------------------- numbers
def drawn(task: Task, bias: Array | None, size: float) -> tuple[Example, Array]:
    """Random numbers, and the result in double precision."""
    rng = np.random.default_rng(5)
    values = {t: (size * rng.standard_normal(t.shape)).astype(np.float32) for t in task.inputs}
    if bias is not None:
        values = {t: bias if t.name == "bias" else a for t, a in values.items()}
    q, k, v = (values[t].astype(np.float64) for t in task.inputs if t.name in "qkv")
    scores = q @ k.swapaxes(1, 2) + (0 if bias is None else bias.astype(np.float64))
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True))
        want = e / e.sum(-1, keepdims=True) @ v
    return Example(values, (want,), exact=False), want


@pytest.mark.parametrize(("leaf", "error"), [(TF32, 5e-3), (FP32X3, 2e-5), (FFMA, 2e-6)],
                         ids=["tf32", "fp32x3", "ffma"])  # fmt: skip
@pytest.mark.parametrize("size", [0.1, 1.0, 4.0])
def test_error_of_random_numbers(leaf: Leaf, error: float, size: float) -> None:
    """Also where the maximum grows from tile to tile by much; then errors of scores count more."""
    form, task = fitted(Attention(2, 33, 130, 16, 16), leaf)
    example, want = drawn(task, None, size)
    kernel = lower_running_attention(form, AttentionTiling(*TILINGS[leaf.is_matrix]), "kernel")
    largest = float(np.abs(want).max())
    check_kernel(kernel, task, example, error * max(1.0, size**3) * max(1.0, largest))


@pytest.mark.parametrize("leaf", [FFMA, TF32], ids=lambda leaf: leaf.name)
def test_masks_may_be_infinite(leaf: Leaf) -> None:
    """Whole tiles of which nothing counts, in front, behind, and everywhere for one row."""
    form, task = fitted(Attention(1, 40, 130, 16, 16, mask="added"), leaf)
    bias = np.zeros((40, 130), np.float32)
    bias[:10, :70] = -np.inf
    bias[10:20, 32:] = -np.inf
    bias[20:30, ::2] = -np.inf
    bias[39] = -np.inf
    example, want = drawn(task, bias, 0.5)
    assert np.isnan(want[0, 39]).all()
    assert np.isfinite(want[0, :39]).all()
    kernel = lower_running_attention(form, AttentionTiling(*TILINGS[leaf.is_matrix]), "kernel")
    check_kernel(kernel, task, example, 5e-3 if leaf is TF32 else 1e-5)


# ----------------------------------------------------------------------------------------- forms
def test_other_functions_have_no_running_maximum() -> None:
    """A sum of squares instead of exponentials, and a factor that depends on the key."""
    form, task = fitted(CASES["whole tiles"], FFMA)
    (y,) = task.outputs
    assert form.exponential == "exp"
    assert find_running_attention(task, MMA) is None

    q, k, v = (t for t in task.inputs)
    assert [t.name for t in (q, k, v)] == ["q", "k", "v"]
    assert y.name == "y"
    changed = Attention(2, 64, 96, 32, 32).task(power=lambda x: x * x)
    assert find_running_attention(changed, FFMA) is None
    changed = Attention(2, 64, 96, 32, 32).task(power=lambda x: call("exp", x) + const(1.0, f32))
    assert find_running_attention(changed, FFMA) is None


def test_it_is_equal_over_the_reals_only() -> None:
    names = {s.name for s in GPU_RUNNING_ATTENTION}
    assert names <= {s.name for s in allowed_sketches(TARGET, "real")}
    assert not names & {s.name for s in allowed_sketches(TARGET, "exact")}


@pytest.mark.parametrize("trigger", [0, 1, 2])
def test_inputs_are_awaited_once_and_by_all(trigger: int) -> None:
    form, _ = fitted(CASES["causal"], TF32)
    tiling = replace(AttentionTiling(*TILINGS[True]), trigger=trigger)
    (nest,) = thread_nests(lower_running_attention(form, tiling, "kernel").program)
    said = [sum(isinstance(s, kind) for s in walk(nest.body)) for kind in (AwaitInputs, LaunchNext)]
    assert said == [1, int(trigger < 2)]


@pytest.mark.parametrize("leaf", [FFMA, MMA], ids=lambda leaf: leaf.name)
def test_program(leaf: Leaf, golden: Callable[[str], None]) -> None:
    form, _ = fitted(Attention(12, 2048, 2000, 64, 64, layout="tokens"), leaf)
    tiling = AttentionTiling(*TILINGS[leaf.is_matrix])
    golden(str(lower_running_attention(form, tiling, "kernel").program))


# ----------------------------------------------------------------------------------------- space
LONG = Attention(12, 2048, 2048, 64, 64)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
@pytest.mark.parametrize("made", [LONG, replace(LONG, rows=4096, keys=4096, depth=40, width=40),
                                  CASES["prime"]], ids=["long", "of images", "prime"])  # fmt: skip
def test_all_candidates_are_legal_and_priced(made: Attention, leaf: Leaf, preset: str) -> None:
    target = PRESETS[preset]
    form, _ = fitted(made, leaf)
    space = running_holes(form, target)
    assert 3 < len(space["bm"]) < 500
    assert is_legal(form, target, space).all()
    costs = running_costs(form, target, space)
    assert costs.shape == space["bm"].shape
    assert np.isfinite(costs).all()
    assert (costs > 1000).all()
    for holes in candidates(space, 6, seed=1):
        kernel = lower_running_attention(form, AttentionTiling(**holes), "kernel")
        (launch,) = launches_of(kernel.program)
        row = {name: np.array([value]) for name, value in holes.items()}
        assert launch.shared_bytes <= int(shared_bytes(form, row)[0])
        assert launch.threads == form.attention.threads(AttentionTiling(**holes))


def test_short_rows_are_in_shared_memory_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    form, _ = fitted(replace(LONG, keys=128), TF32)
    assert not len(running_holes(form, TARGET)["bm"])
    form, _ = fitted(replace(LONG, keys=512), TF32)
    assert len(running_holes(form, TARGET)["bm"])


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_long_attention_is_one_kernel(precision: str) -> None:
    """Four thousand keys, whose scores no shared memory holds."""
    q, k, v = (make_input(n, Placeholder(n, (8, 4096, 40), f32).type) for n in "qkv")
    (turned,) = apply(Transpose((0, 2, 1)), k)
    (scores,) = apply(REGISTRY["matmul"](), q, turned)
    (weights,) = apply(REGISTRY["softmax"](2), scores)
    graph = expand_composites(Graph((q, k, v), apply(REGISTRY["matmul"](), weights, v), ("y",)))
    price = GpuPrice(replace(TARGET, precision=precision), "real")
    (plan,) = plan_graph(graph, price, lambda dtype: not dtype.is_storage_only).plans.values()
    (step,) = plan.steps
    assert isinstance(step, Step)
    chosen = price.choice(step.task)
    assert chosen is not None
    assert chosen.sketch.name.startswith("gpu_running_")
    exact = GpuPrice(TARGET, "exact")
    (plan,) = plan_graph(graph, exact, lambda dtype: not dtype.is_storage_only).plans.values()
    assert len(plan.steps) == 3
