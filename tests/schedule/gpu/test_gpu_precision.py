"""Products of single precision by tensor cores: rounded factors, and factors in two parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import TARGET, Run, candidates
from tests.schedule.small_tasks import make_task
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.compiled import run_text
from whet.codegen.cuda.emit import emit_program
from whet.codegen.cuda.nvrtc import compile_cubin
from whet.core.dtypes import DType, f16, f32
from whet.core.gpu import PRESETS, GpuTarget
from whet.core.types import Array
from whet.ir.expr import Axis, Expr, call, cast
from whet.ir.functions import TF32_ROUNDING, tf32, tf32_cut
from whet.ir.lockstep import run_threads
from whet.ir.tensor import Compute, compute, placeholder, reduce_axis, sum_
from whet.schedule.families.gpu_contraction.sketch import (
    GPU_FFMA,
    GPU_FP32X3,
    GPU_MMA,
    GPU_TF32,
    ContractionOnGpu,
)
from whet.schedule.program.kernel import Kernel, prepare_constant
from whet.tasks.task import Task

LEAVES = {made.leaf.precision: made for made in (GPU_TF32, GPU_FP32X3)}
HOLES = ("bm", "bn", "tm", "tn", "bk", "stages", "splits", "trigger")
SMALL = dict(zip(HOLES, (16, 32, 16, 16, 16, 2, 1, 0), strict=True))
SHAPES = [(40, 48, 72), (17, 64, 100)]


def target_of(precision: str) -> GpuTarget:
    return replace(TARGET, precision=precision)


def product(m: int, n: int, k: int, *, constant: bool = True, dtype: DType = f32) -> Task:
    """relu(a @ b), summed in f32."""
    a, b, r = placeholder((m, k), dtype, "a"), placeholder((k, n), dtype, "b"), reduce_axis(k, "k")

    def element(i: Axis, j: Axis) -> Expr:
        return call("max", sum_(cast(a[i, r], f32) * cast(b[r, j], f32), r), 0.0)

    return make_task(compute((m, n), element, "y"), constants=[b] if constant else [])


def kernels(sketch: ContractionOnGpu, task: Task, count: int = 3) -> list[Kernel]:
    form = sketch.fits(task)
    assert form is not None
    space = sketch.space(form, target_of(sketch.leaf.precision), 1)
    chosen = list(candidates(space, count, seed=1))
    assert chosen
    return [sketch.lower(form, holes, "kernel") for holes in chosen]


def results(kernel: Kernel, task: Task, a: Array, b: Array, run: Run = run_threads) -> Array:
    """What the threads of a kernel make of the factors."""
    given = dict(zip(task.inputs, (a, b), strict=True))
    known = {t: given[t] for t in task.constants}
    arrays, constants = [], []
    for buffer, tensor in zip(kernel.program.inputs, kernel.arguments, strict=True):
        if tensor in given:
            array = given[tensor]
        else:
            assert isinstance(tensor, Compute)
            array = prepare_constant(tensor, task, known)
        arrays.append(array.reshape(buffer.shape))
        if tensor not in given or tensor in known:
            constants.append(buffer)
    (made,) = run(kernel.program, arrays, constants)
    return made.reshape(a.shape[0], b.shape[1])


def error(got: Array, a: Array, b: Array) -> float:
    """How far a product is from relu(a @ b), as a part of its size."""
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("precision", LEAVES)
@pytest.mark.parametrize("shape", SHAPES)
def test_small_integers_are_exact(
    shape: tuple[int, int, int], precision: str, constant: bool
) -> None:
    m, n, k = shape
    task = product(m, n, k, constant=constant)
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-8, 9, s).astype(np.float32) for s in ((m, k), (k, n)))
    for kernel in kernels(LEAVES[precision], task):
        np.testing.assert_array_equal(results(kernel, task, a, b), np.maximum(a @ b, 0))


@pytest.mark.parametrize(
    ("precision", "least", "most"), [("tf32", 1e-5, 1e-3), ("fp32x3", 0.0, 1e-6)]
)
@pytest.mark.parametrize("constant", [True, False])
def test_error_of_random_numbers(precision: str, least: float, most: float, constant: bool) -> None:
    task = product(40, 48, 200, constant=constant)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((40, 200), (200, 48)))
    for kernel in kernels(LEAVES[precision], task):
        assert least <= error(results(kernel, task, a, b), a, b) <= most


@needs_text_runner
@pytest.mark.parametrize("depth", [500, 4000])
def test_errors_of_three_products_do_not_grow_with_their_number(depth: int) -> None:
    """Sums in a matrix are cut off, in texts that run here as on GPUs."""
    task = product(33, 32, depth)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((33, depth), (depth, 32)))
    for kernel in kernels(LEAVES["fp32x3"], task):
        assert error(results(kernel, task, a, b, run_text), a, b) <= 1e-6


def test_factors_are_rounded_and_not_cut_off() -> None:
    """Cutting off makes positive numbers smaller, all of them: by 3e-4 on average."""
    task = product(32, 32, 64)
    rng = np.random.default_rng(4)
    a, b = (rng.uniform(1, 2, s).astype(np.float32) for s in ((32, 64), (64, 32)))
    want = a.astype(np.float64) @ tf32(b)
    assert np.mean(tf32_cut(a).astype(np.float64) @ tf32(b) / want - 1) < -3e-4
    for kernel in kernels(GPU_TF32, task):
        assert abs(np.mean(results(kernel, task, a, b) / want - 1)) < 1e-4


@pytest.mark.parametrize("precision", ["fp32", "fp32x3", "tf32", "fp16"])
def test_leaves_are_offered_where_they_are_allowed(precision: str) -> None:
    task = product(64, 64, 64)

    def offered(sketch: ContractionOnGpu) -> bool:
        form = sketch.fits(task)
        assert form is not None
        return len(sketch.space(form, target_of(precision), 1)["bm"]) > 0

    assert offered(GPU_FFMA)
    assert offered(GPU_TF32) == (precision == "tf32")
    assert offered(GPU_FP32X3) == (precision == "fp32x3")


def test_program(golden: Callable[[str], None]) -> None:
    task = product(64, 64, 64)
    form = GPU_TF32.fits(task)
    assert form is not None
    golden(str(GPU_TF32.lower(form, SMALL, "kernel").program))


def test_program_of_three_products(golden: Callable[[str], None]) -> None:
    task = product(64, 64, 64)
    form = GPU_FP32X3.fits(task)
    assert form is not None
    golden(str(GPU_FP32X3.lower(form, SMALL, "kernel").program))


@pytest.mark.cuda
@pytest.mark.parametrize("target", PRESETS.values(), ids=lambda t: t.architecture)
@pytest.mark.parametrize("sketch", [GPU_TF32, GPU_FP32X3, GPU_MMA], ids=lambda s: s.name)
def test_kernels_compile(target: GpuTarget, sketch: ContractionOnGpu) -> None:
    task = product(64, 64, 64, dtype=f16 if sketch is GPU_MMA else f32)
    form = sketch.fits(task)
    assert form is not None
    text, _ = emit_program(sketch.lower(form, SMALL, "kernel").program, target)
    assert ("whet_tf32_cut(" in text) == (sketch is GPU_FP32X3)
    assert compile_cubin(text, target.architecture).startswith(b"\x7fELF")


def test_rounding_leaves_numbers_of_ten_bits_as_they_are() -> None:
    bits = np.arange(1 << 10, dtype=np.uint32) << 13
    numbers = (bits | np.float32(1.0).view(np.uint32)).view(np.float32)
    np.testing.assert_array_equal(tf32_cut(numbers * np.float32(TF32_ROUNDING)), numbers)
    special = np.array([np.inf, -np.inf, 0.0], np.float32)
    np.testing.assert_array_equal(tf32_cut(special * np.float32(TF32_ROUNDING)), special)
    assert np.isnan(tf32_cut(np.float32(np.nan) * np.float32(TF32_ROUNDING)))


def test_parts_of_factors_are_as_precise_as_sums() -> None:
    """What is lost of factors in two parts is less than what sums of f32 lose."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 576)).astype(np.float32) for _ in range(2))
    high_a, high_b = tf32_cut(a), tf32_cut(b)
    low_a, low_b = tf32_cut(a - high_a), tf32_cut(b - high_b)
    parts = ((low_a, high_b), (high_a, low_b), (high_a, high_b))
    got = sum(x.astype(np.float64) @ y.astype(np.float64).T for x, y in parts)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 4e-7
