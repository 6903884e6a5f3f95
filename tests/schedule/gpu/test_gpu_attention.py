"""Attention in one kernel: every candidate means the task, is legal, and is preferred where it
pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.gpu.attention_tasks import Attention
from tests.schedule.gpu.lockstep_kernels import TARGET, candidates, check_kernel
from whet.codegen.cuda.emit import emit_program
from whet.codegen.cuda.launch import launches_of
from whet.codegen.cuda.nvrtc import compile_cubin
from whet.core.dtypes import bf16, f16, f32
from whet.core.gpu import PRESETS, SHARED_ALIGNMENT, GpuTarget
from whet.ir.program import Loop, walk
from whet.ir.threads import AwaitInputs, Copy, LaunchNext, MatrixLoad, extent_of, thread_nests
from whet.schedule.families.gpu_attention.lower import lower_gpu_attention
from whet.schedule.families.gpu_attention.match import (
    AttentionTiling,
    GpuAttention,
    find_gpu_attention,
)
from whet.schedule.families.gpu_attention.price import attention_costs
from whet.schedule.families.gpu_attention.resources import shared_bytes
from whet.schedule.families.gpu_attention.sketch import GPU_ATTENTION, AttentionOnGpu
from whet.schedule.families.gpu_attention.space import attention_holes, is_legal
from whet.schedule.families.gpu_contraction.match import FFMA, FP32X3, MMA, TF32, Leaf
from whet.schedule.program.triggers import NEVER
from whet.tasks.examples import Example, make_example
from whet.tasks.task import Task

LEAVES = (FFMA, MMA, TF32, FP32X3)
TOLERANCE = {TF32: 3e-3, FP32X3: 1e-4}
"""Of leaves that round more than the type does."""
BERT = Attention(12, 128, 128, 64, 64, layout="tokens")
TILINGS = {False: (16, 64, 2, 4, 1, 4, 3, 2), True: (16, 64, 16, 16, 16, 16, 3, 0)}
"""For threads and for warps."""

CASES: dict[str, Attention] = {
    "square": Attention(2, 32, 32, 32, 32),
    "prime": Attention(3, 37, 41, 17, 23),
    "few rows": Attention(2, 5, 40, 16, 16),
    "few keys": Attention(2, 20, 3, 16, 16),
    "head of 17": Attention(1, 19, 29, 17, 17, scale=0.25),
    "head of 80": Attention(1, 16, 24, 80, 80),
    "wide values": Attention(1, 18, 24, 16, 130),
    "long": Attention(1, 17, 150, 20, 24),
    "scaled": Attention(2, 21, 33, 20, 12, scale=0.125),
    "added mask": Attention(2, 21, 36, 16, 20, mask="added"),
    "mask of keys": Attention(2, 9, 35, 16, 20, mask="of keys"),
    "causal": Attention(2, 33, 33, 16, 16, mask="causal"),
    "tokens": Attention(3, 20, 28, 16, 16, layout="tokens"),
    "tokens, odd": Attention(3, 19, 29, 17, 15, layout="tokens", mask="added"),
    "turned keys": Attention(2, 20, 28, 16, 16, layout="turned keys"),
    "turned keys, odd": Attention(2, 20, 29, 18, 16, layout="turned keys"),
    "turned values": Attention(2, 20, 28, 16, 16, layout="turned values"),
    "something after": Attention(2, 18, 24, 16, 20, epilogue=True),
    "shared keys": Attention(3, 18, 24, 16, 20, shared_keys=True),
    "constant keys": Attention(2, 18, 24, 16, 20, constant=True),
}


def case_of(case: str, leaf: Leaf) -> Attention:
    return replace(CASES[case], dtype=f16) if leaf is MMA else CASES[case]


def fitted(task: Task, leaf: Leaf) -> GpuAttention:
    form = find_gpu_attention(task, leaf)
    assert form is not None
    return form


def check(form: GpuAttention, holes: dict[str, int], example: Example) -> None:
    kernel = lower_gpu_attention(form, AttentionTiling(**holes), "kernel")
    check_kernel(kernel, form.task, example, TOLERANCE.get(form.leaf))


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
@pytest.mark.parametrize("case", CASES)
def test_any_candidate_means_the_task(case: str, leaf: Leaf) -> None:
    task = case_of(case, leaf).task()
    form, example = fitted(task, leaf), make_example(task, 1)
    chosen = list(candidates(attention_holes(form, TARGET), 4, seed=len(case)))
    assert chosen
    for holes in chosen:
        check(form, holes, example)


@pytest.mark.parametrize("leaf", [FFMA, MMA], ids=lambda leaf: leaf.name)
@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_halves(dtype: object, leaf: Leaf) -> None:
    made = replace(CASES["added mask"], dtype=bf16 if dtype is bf16 else f16)
    task = made.task()
    form, example = fitted(task, leaf), make_example(task, 2)
    for holes in candidates(attention_holes(form, TARGET), 3, seed=2):
        check(form, holes, example)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_older_gpus(leaf: Leaf) -> None:
    """No kernel lets the next one in, and shared memory is smaller."""
    task = case_of("tokens, odd", leaf).task()
    form, example = fitted(task, leaf), make_example(task, 6)
    space = attention_holes(form, PRESETS["cuda-sm_80"])
    assert (space["trigger"] == NEVER).all()
    for holes in candidates(space, 2, seed=6):
        check(form, holes, example)


@pytest.mark.parametrize("stages", range(2, 10))
@pytest.mark.parametrize("leaf", [FFMA, MMA], ids=lambda leaf: leaf.name)
def test_any_number_of_stages(leaf: Leaf, stages: int) -> None:
    """From one tile under way to all of the keys and values."""
    task = replace(case_of("prime", leaf), keys=130, depth=16, width=32).task()
    form = fitted(task, leaf)
    size = (16, 32, 2, 2, 1, 4) if leaf is FFMA else (16, 32, 16, 16, 16, 16)
    holes = dict(zip(AttentionTiling.__annotations__, (*size, stages, 1, 1), strict=True))
    assert form.steps(AttentionTiling(**holes)) == 5
    check(form, holes, make_example(task, 3))


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_long_rows_are_read_again(leaf: Leaf) -> None:
    """Threads keep 32 elements of a row in registers, and here each has 50."""
    made = Attention(1, 40, 200, 16, 32, mask="added", dtype=f16 if leaf is MMA else f32)
    task = made.task()
    size = (32, 64, 16, 32, 16, 16) if leaf.is_matrix else (32, 64, 4, 4, 2, 4)
    tiling = AttentionTiling(*size, 2, 2)
    form = fitted(task, leaf)
    kernel = lower_gpu_attention(form, tiling, "kernel")
    assert "line" not in str(kernel.program)
    check_kernel(kernel, task, make_example(task, 4), TOLERANCE.get(leaf))


@pytest.mark.parametrize(
    ("leaf", "least", "most"), [(TF32, 1e-5, 1e-3), (FP32X3, 0.0, 2e-6), (FFMA, 0.0, 1e-6)],
    ids=["tf32", "fp32x3", "ffma"],
)  # fmt: skip
def test_error_of_random_numbers(leaf: Leaf, least: float, most: float) -> None:
    task = Attention(2, 24, 70, 64, 32, scale=0.125).task()
    rng = np.random.default_rng(5)
    drawn = {t: rng.standard_normal(t.shape).astype(np.float32) for t in task.inputs}
    q, k, v = (drawn[t].astype(np.float64) for t in task.inputs)
    scores = 0.125 * q @ k.swapaxes(1, 2)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True) @ v
    form = fitted(task, leaf)
    kernel = lower_gpu_attention(form, AttentionTiling(*TILINGS[leaf.is_matrix]), "kernel")
    example = Example(drawn, (want,), exact=False)
    check_kernel(kernel, task, example, 10 * most)
    if least:
        with pytest.raises(AssertionError):
            check_kernel(kernel, task, example, least)


def test_what_fits() -> None:
    task = CASES["square"].task()
    assert find_gpu_attention(task, MMA) is None
    half = replace(CASES["square"], dtype=f16).task()
    assert [find_gpu_attention(half, leaf) is not None for leaf in LEAVES] == [True, True, False,
                                                                              False]  # fmt: skip


# ------------------------------------------------------------------------------------ programs
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_factors_are_copied_in_long_runs(leaf: Leaf) -> None:
    form = fitted(replace(BERT, dtype=f16 if leaf is MMA else f32).task(), leaf)
    kernel = lower_gpu_attention(form, AttentionTiling(*TILINGS[leaf.is_matrix]), "kernel")
    copies = [s for s in walk(kernel.program.body) if isinstance(s, Copy)]
    assert {s.source.name for s in copies} == {"q", "k", "v"}
    assert {s.elements * s.source.dtype.itemsize for s in copies} == {16}
    turned = [s.turned for s in walk(kernel.program.body) if isinstance(s, MatrixLoad)]
    assert turned == ([False, False, False, True] if leaf.is_matrix else [])


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_keys_may_lie_along_their_length(leaf: Leaf) -> None:
    made = replace(BERT, layout="turned keys", dtype=f16 if leaf is MMA else f32)
    form = fitted(made.task(), leaf)
    kernel = lower_gpu_attention(form, AttentionTiling(*TILINGS[leaf.is_matrix]), "kernel")
    copies = [s for s in walk(kernel.program.body) if isinstance(s, Copy)]
    assert {s.elements * s.source.dtype.itemsize for s in copies} == {16}
    turned = [s.turned for s in walk(kernel.program.body) if isinstance(s, MatrixLoad)]
    assert turned == ([False, True, False, True] if leaf.is_matrix else [])


@pytest.mark.parametrize("trigger", [0, 1, 2])
def test_inputs_are_awaited_once_and_by_all(trigger: int) -> None:
    form = fitted(CASES["causal"].task(), TF32)
    tiling = replace(AttentionTiling(*TILINGS[True]), trigger=trigger)
    (nest,) = thread_nests(lower_gpu_attention(form, tiling, "kernel").program)
    said = [sum(isinstance(s, kind) for s in walk(nest.body)) for kind in (AwaitInputs, LaunchNext)]
    assert said == [1, int(trigger < 2)]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_masks_are_loaded_before_scores_are_computed(leaf: Leaf) -> None:
    made = replace(BERT, mask="added", dtype=f16 if leaf is MMA else f32)
    form = fitted(made.task(), leaf)
    tiling = AttentionTiling(*TILINGS[leaf.is_matrix])
    text = str(lower_gpu_attention(form, tiling, "kernel").program)
    assert text.count("bias[") == 1
    assert text.index("bias[") < text.index("for step")


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_warps_share_keys(parts: int) -> None:
    """Sums of all parts are added up; weights and values are multiplied once."""
    task = Attention(2, 20, 100, 32, 64, dtype=f16).task()
    form = fitted(task, MMA)
    tiling = AttentionTiling(16, 64, 16, 16, 16, 16 * parts, 3, 0, parts)
    kernel = lower_gpu_attention(form, tiling, "kernel")
    (sums,) = (b for n in thread_nests(kernel.program) for b in n.shared if b.name == "sums")
    assert sums.shape[0] == parts
    loops = [s for s in walk(kernel.program.body) if isinstance(s, Loop)]
    _, values = (s for s in loops if s.var.name == "group")
    assert extent_of(values) == 4 // parts
    check_kernel(kernel, task, make_example(task, 5), TOLERANCE.get(MMA))


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_exponentials_are_precise_where_weights_are(leaf: Leaf) -> None:
    near = leaf in (MMA, TF32)
    form = fitted(replace(BERT, dtype=f16 if leaf is MMA else f32).task(), leaf)
    text = str(lower_gpu_attention(form, AttentionTiling(*TILINGS[leaf.is_matrix]), "k").program)
    assert ("exp_near(" in text, "reciprocal_near(" in text) == (near, near)
    assert (" exp(" in text) == (not near)


@pytest.mark.parametrize("leaf", [FFMA, MMA], ids=lambda leaf: leaf.name)
def test_program(leaf: Leaf, golden: Callable[[str], None]) -> None:
    made = replace(BERT, keys=120, mask="added", dtype=f16 if leaf is MMA else f32)
    form = fitted(made.task(), leaf)
    tiling = AttentionTiling(*TILINGS[leaf.is_matrix])
    golden(str(lower_gpu_attention(form, tiling, "kernel").program))


# --------------------------------------------------------------------------------------- space
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
@pytest.mark.parametrize("made", [BERT, replace(BERT, rows=197, keys=197), CASES["prime"]],
                         ids=["bert", "vit", "prime"])  # fmt: skip
def test_all_candidates_are_legal_and_priced(made: Attention, leaf: Leaf, preset: str) -> None:
    target = PRESETS[preset]
    form = fitted(replace(made, dtype=f16 if leaf is MMA else f32).task(), leaf)
    space = attention_holes(form, target)
    assert 20 < len(space["bm"]) < 3000
    assert is_legal(form, target, space).all()
    assert (shared_bytes(form, space) <= target.shared_bytes).all()
    costs = attention_costs(form, target, space)
    assert costs.shape == space["bm"].shape
    assert np.isfinite(costs).all()
    assert (costs > 1000).all()


@pytest.mark.parametrize(("leaf", "known"), [(FFMA, 6400), (TF32, 3700), (MMA, 2800)],
                         ids=["ffma", "tf32", "mma"])  # fmt: skip
def test_prices_are_not_far_from_known_kernels(leaf: Leaf, known: int) -> None:
    """Kernels of this shape, written by hand, took so many nanoseconds on an H200."""
    form = fitted(replace(BERT, dtype=f16 if leaf is MMA else f32).task(), leaf)
    best = attention_costs(form, TARGET, attention_holes(form, TARGET)).min()
    assert 0.7 < best / known < 1.5


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
@pytest.mark.parametrize("case", ["prime", "long", "tokens", "wide values", "turned keys"])
def test_shared_memory_is_what_was_expected(case: str, leaf: Leaf) -> None:
    form = fitted(case_of(case, leaf).task(), leaf)
    for holes in candidates(attention_holes(form, TARGET), 20, seed=1):
        kernel = lower_gpu_attention(form, AttentionTiling(**holes), "kernel")
        (launch,) = launches_of(kernel.program)
        row = {name: np.array([value]) for name, value in holes.items()}
        expected = int(shared_bytes(form, row)[0])
        assert launch.shared_bytes <= expected
        sources = {s.source.name for s in walk(kernel.program.body) if isinstance(s, Copy)}
        if len(sources) == 3:  # what threads store may share a place; the last is not rounded up
            assert launch.shared_bytes > expected - SHARED_ALIGNMENT
        assert launch.threads == form.threads(AttentionTiling(**holes))


def test_rows_longer_than_shared_memory_are_not_offered() -> None:
    form = fitted(Attention(1, 64, 4000, 64, 64).task(), TF32)
    assert not len(attention_holes(form, TARGET)["bm"])
    shorter = fitted(Attention(1, 64, 1500, 64, 64).task(), TF32)
    assert len(attention_holes(shorter, TARGET)["bm"])


@pytest.mark.parametrize("precision", ["fp32", "fp32x3", "tf32", "fp16"])
def test_leaves_are_offered_where_they_are_allowed(precision: str) -> None:
    task, half = BERT.task(), replace(BERT, dtype=f16).task()

    def offered(sketch: AttentionOnGpu) -> bool:
        form = sketch.fits(half if sketch.leaf is MMA else task)
        assert form is not None
        return len(sketch.space(form, replace(TARGET, precision=precision), 1)["bm"]) > 0

    found = {s.leaf for s in GPU_ATTENTION if offered(s)}
    assert found == {FFMA, MMA, *(leaf for leaf in (TF32, FP32X3) if leaf.precision == precision)}


@pytest.mark.cuda
@pytest.mark.parametrize("target", PRESETS.values(), ids=lambda t: t.architecture)
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_kernels_compile(target: GpuTarget, leaf: Leaf) -> None:
    form = fitted(replace(BERT, mask="added", dtype=f16 if leaf is MMA else f32).task(), leaf)
    space = attention_holes(form, target)
    best = int(np.argmin(attention_costs(form, target, space)))
    tiling = AttentionTiling(**{hole: int(column[best]) for hole, column in space.items()})
    text, _ = emit_program(lower_gpu_attention(form, tiling, "kernel").program, target)
    assert ("ldmatrix" in text) == leaf.is_matrix
    assert (".trans" in text) == (leaf is MMA)
    assert compile_cubin(text, target.architecture).startswith(b"\x7fELF")
