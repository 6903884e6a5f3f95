"""Contractions on GPUs: every candidate means the task, bit for bit, and the space is legal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import TARGET, candidates
from tests.schedule.small_tasks import make_task, matmul_relu
from tests.schedule.test_contraction import (
    batched,
    product,
    strange,
    transposed_product,
    turned_rows,
    two_reduced,
)
from tests.schedule.windows import Windows
from whet.codegen.cuda.emit import emit_program
from whet.core.dtypes import DType, bf16, f16, f32
from whet.core.gpu import PRESETS
from whet.core.types import Array
from whet.ir.expr import call, cast
from whet.ir.lockstep import run_threads
from whet.ir.program import Buffer, Loop, Program, walk
from whet.ir.tensor import Compute, Tensor, compute, placeholder, reduce_axis, sum_
from whet.ir.threads import (
    AwaitInputs,
    Copy,
    LaunchNext,
    MatrixLoad,
    MatrixMultiplyAdd,
    thread_nests,
)
from whet.ops.conv import Conv
from whet.ops.matmul import MatMul
from whet.schedule.families.gpu_contraction.lower import lower_gpu_contraction
from whet.schedule.families.gpu_contraction.match import (
    FFMA,
    FP32X3,
    MMA,
    TF32,
    GpuContraction,
    Leaf,
    Tiling,
    find_gpu_contraction,
)
from whet.schedule.families.gpu_contraction.price import gpu_costs
from whet.schedule.families.gpu_contraction.sketch import GPU_FFMA, GPU_MMA
from whet.schedule.families.gpu_contraction.space import gpu_holes, is_legal
from whet.schedule.program.kernel import Kernel, prepare_constant
from whet.tasks.examples import Example, make_example
from whet.tasks.task import Task


def halves(m: int, n: int, k: int, dtype: DType = f16, *, constant: bool = True) -> Task:
    a, b = placeholder((m, k), dtype, "a"), placeholder((k, n), dtype, "b")
    return make_task(MatMul().compute(a, b), constants=[b] if constant else [])


def scores(heads: int, m: int, n: int, k: int) -> Task:
    """Products of rows with rows in half precision."""
    a, b = placeholder((heads, m, k), f16, "a"), placeholder((heads, n, k), f16, "b")
    r = reduce_axis(k, "k")
    y = compute(
        (heads, m, n),
        lambda h, i, j: cast(sum_(cast(a[h, i, r], f32) * cast(b[h, j, r], f32), r), f16),
        "y",
    )
    return make_task(y)


def scaled(m: int, n: int, k: int) -> Task:
    """A factor that threads must compute."""
    a, s, b = (placeholder(shape, f32, name) for shape, name in
               (((m, k), "a"), ((m,), "s"), ((k, n), "b")))  # fmt: skip
    r = reduce_axis(k, "k")
    y = compute((m, n), lambda i, j: sum_((a[i, r] + s[i]) * b[r, j], r), "y")
    return make_task(y, constants=[b])


def unseen(m: int, n: int, k: int) -> Task:
    """y[p, i, j] = relu(sum over q, r, s of a[q, i, r, s] * b[s, p, q, j, r]) - c[j, p]"""
    a, b = placeholder((3, m, 2, k), f32, "a"), placeholder((k, 2, 3, n, 2), f32, "b")
    c = placeholder((n, 2), f32, "c")
    q, r, s = reduce_axis(3, "q"), reduce_axis(2, "r"), reduce_axis(k, "s")
    y = compute(
        (2, m, n),
        lambda p, i, j: call("max", sum_(a[q, i, r, s] * b[s, p, q, j, r], q, r, s), 0.0) - c[j, p],
        "y",
    )
    return make_task(y, constants=[b])


def constant_rows(m: int, n: int, k: int) -> Task:
    """The factor with the rows is constant, that with the columns is not."""
    a, b, r = placeholder((m, k), f32, "a"), placeholder((k, n), f32, "b"), reduce_axis(k, "k")
    return make_task(compute((m, n), lambda i, j: sum_(a[i, r] * b[r, j], r), "y"), constants=[a])


def half_convolution(inputs: int = 16) -> Task:
    """Channels last, in half precision, with conditions instead of zeros around the image."""
    x, w = placeholder((1, inputs, 6, 5), f16, "x"), placeholder((24, inputs, 3, 3), f16, "w")
    y = Conv((1, 1), (1, 1, 1, 1), (1, 1), 1).compute(x, w)
    buffers: dict[Tensor, Buffer] = {w: Buffer("w", w.shape, f16)}
    for tensor, channels in ((x, inputs), (y, 24)):
        strides = (30 * channels, 1, 5 * channels, channels)
        buffers[tensor] = Buffer(tensor.name, tensor.shape, f16, strides)
    return Task((y,), buffers, frozenset([w]), {})


CASES: dict[str, tuple[Leaf, Callable[[], Task]]] = {
    "matrices": (FFMA, lambda: matmul_relu(70, 40, 50)),
    "prime": (FFMA, lambda: matmul_relu(37, 41, 53)),
    "few rows": (FFMA, lambda: matmul_relu(3, 72, 64)),
    "deep": (FFMA, lambda: matmul_relu(32, 32, 600)),
    "seven by seven": (FFMA, lambda: matmul_relu(49, 100, 96)),
    "thousand columns": (FFMA, lambda: matmul_relu(17, 1000, 40)),
    "both move": (FFMA, lambda: product(49, 100, 64)),
    "turned factor": (FFMA, lambda: transposed_product(33, 65, 40)),
    "batch": (FFMA, lambda: batched(40, 36, 24)),
    "windows of rows": (FFMA, lambda: two_reduced(50, 30, 20)),
    "other order": (FFMA, lambda: turned_rows(20, 30, 12)),
    "strange": (FFMA, lambda: strange(20, 30, 12)),
    "computed factor": (FFMA, lambda: scaled(35, 36, 44)),
    "constant rows": (FFMA, lambda: constant_rows(35, 50, 44)),
    "never seen": (FFMA, lambda: unseen(19, 33, 20)),
    "convolution": (FFMA, lambda: Windows((7, 7), 16, 40, epilogue=True).task),
    "condition": (FFMA, lambda: Windows((7, 7), 16, 40, epilogue=True, border=False).task),
    "strided": (FFMA, lambda: Windows((9, 9), 16, 24, stride=2).task),
    "three channels": (FFMA, lambda: Windows((9, 9), 3, 24).task),
    "17 channels": (FFMA, lambda: Windows((5, 5), 17, 17, border=False).task),
    "groups": (FFMA, lambda: Windows((5, 5), 16, 16, groups=2).task),
    "halves by threads": (FFMA, lambda: halves(50, 72, 64)),
    "halves": (MMA, lambda: halves(50, 72, 64)),
    "bf16": (MMA, lambda: halves(20, 40, 14, bf16)),
    "odd halves": (MMA, lambda: halves(49, 33, 41)),
    "halves both move": (MMA, lambda: halves(20, 40, 33, constant=False)),
    "scores": (MMA, lambda: scores(3, 20, 24, 32)),
    "half convolution": (MMA, half_convolution),
}


def fitted(leaf: Leaf, task: Task) -> GpuContraction:
    form = find_gpu_contraction(task, leaf)
    assert form is not None
    return form


def elements_of(buffer: Buffer, memory: Array) -> Array:
    """A view of the elements of a buffer in its memory."""
    strides = [s * memory.itemsize for s in buffer.element_strides]
    first = memory.reshape(-1)[buffer.offset :]
    return np.lib.stride_tricks.as_strided(first, buffer.shape, strides)


def results_of(kernel: Kernel, task: Task, example: Example) -> Array:
    """The result of the kernel, run thread by thread."""
    arrays: list[Array] = []
    known: list[Buffer] = []
    for buffer, tensor in zip(kernel.program.inputs, kernel.arguments, strict=True):
        if isinstance(tensor, Compute):
            constants = {t: example.inputs[t] for t in task.constants}
            arrays.append(prepare_constant(tensor, task, constants))
            known.append(buffer)
        elif buffer is task.buffers[tensor]:
            arrays.append(example.inputs[tensor])
        else:
            memory = np.zeros(buffer.shape, buffer.dtype.numpy)
            elements_of(task.buffers[tensor], memory)[...] = example.inputs[tensor]
            arrays.append(memory)
    (found,) = run_threads(kernel.program, arrays, known)
    return elements_of(task.buffers[task.outputs[0]], found)


@pytest.mark.parametrize("case", CASES)
def test_any_candidate_means_the_task(case: str) -> None:
    leaf, make = CASES[case]
    task = make()
    form = fitted(leaf, task)
    example = make_example(task, 1)
    assert example.exact
    for holes in candidates(gpu_holes(form, TARGET), 5, seed=3):
        found = results_of(lower_gpu_contraction(form, Tiling(**holes), "k"), task, example)
        np.testing.assert_array_equal(found, example.outputs[0], err_msg=str(holes))


@pytest.mark.parametrize("trigger", [0, 1])
@pytest.mark.parametrize("splits", [1, 2, 4])
@pytest.mark.parametrize("leaf", [FFMA, MMA], ids=lambda leaf: leaf.name)
def test_any_number_of_blocks_shares_a_sum(leaf: Leaf, splits: int, trigger: int) -> None:
    """The depth is neither a multiple of the stages nor of what blocks take of it."""
    task = halves(49, 44, 150) if leaf.is_matrix else matmul_relu(49, 44, 150)
    tile = (32, 32, 16, 16, 32) if leaf.is_matrix else (32, 32, 4, 4, 16)
    kernel = lower_gpu_contraction(fitted(leaf, task), Tiling(*tile, 2, splits, trigger), "k")
    example = make_example(task, 2)
    np.testing.assert_array_equal(results_of(kernel, task, example), example.outputs[0])
    (nest,) = thread_nests(kernel.program)
    assert nest.blocks == splits


@pytest.mark.parametrize(("leaf", "error"), [(TF32, 2e-3), (FP32X3, 1e-6)], ids=["tf32", "fp32x3"])
def test_f32_by_tensor_cores_is_as_precise_as_it_says(leaf: Leaf, error: float) -> None:
    task = make_task(
        MatMul().compute(placeholder((40, 64), f32, "a"), placeholder((64, 72), f32, "b"))
    )
    form = fitted(leaf, task)
    rng = np.random.default_rng(0)
    drawn = {t: rng.standard_normal(t.shape).astype(np.float32) for t in task.inputs}
    a, b = (drawn[t].astype(np.float64) for t in task.inputs)
    example = Example(drawn, (a @ b,), exact=False)
    for holes in candidates(gpu_holes(form, TARGET), 3, seed=1):
        found = results_of(lower_gpu_contraction(form, Tiling(**holes), "k"), task, example)
        assert np.linalg.norm(found - a @ b) < error * np.linalg.norm(a @ b)


def group_of(program: Program) -> Loop:
    """The loop over the groups of products of a stage."""
    (found,) = (s for s in walk(program.body) if isinstance(s, Loop) and s.var.name == "group")
    return found


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("sizes", [
    (32, 32, 16, 16, 32, 3),  # fewer copies of a thread than groups of products
    (64, 32, 16, 16, 64, 4),
    (16, 64, 16, 16, 48, 3),  # shares of different sizes
    (48, 80, 16, 16, 64, 3),  # and threads that have none
], ids=str)  # fmt: skip
@pytest.mark.parametrize("factor", ["memory", "computed", "windows"])
def test_stages_come_in_parts_beside_products(
    factor: str, sizes: tuple[int, ...], splits: int
) -> None:
    task = {"memory": halves(49, 44, 1000), "computed": halves(49, 44, 1001),
            "windows": half_convolution(128)}[factor]  # fmt: skip
    kernel = lower_gpu_contraction(fitted(MMA, task), Tiling(*sizes, splits, 0), "k")
    order = (MatrixLoad, Copy, MatrixMultiplyAdd)
    inside = [type(s) for s in walk(group_of(kernel.program).body) if isinstance(s, order)]
    assert inside == sorted(inside, key=order.index)
    assert inside.count(Copy) == (1 if factor == "computed" else 2)
    example = make_example(task, 3)
    np.testing.assert_array_equal(results_of(kernel, task, example), example.outputs[0])


@pytest.mark.parametrize(("depth", "stages"), [(1000, 2), (128, 4)], ids=["next", "few"])
def test_stages_come_at_once_where_they_are_waited_for_or_rare(depth: int, stages: int) -> None:
    tiling = Tiling(32, 32, 16, 16, 32, stages, 1, 0)
    program = lower_gpu_contraction(fitted(MMA, halves(49, 44, depth)), tiling, "k").program
    assert not any(isinstance(s, Copy) for s in walk(group_of(program).body))


def test_leaves_take_their_types_alone() -> None:
    assert GPU_MMA.fits(matmul_relu()) is None
    assert GPU_MMA.fits(halves(8, 8, 8)) is not None
    assert GPU_FFMA.fits(halves(8, 8, 8)) is not None
    assert find_gpu_contraction(halves(8, 8, 8), TF32) is None


# ------------------------------------------------------------------------------------- loading
def copies(task: Task, leaf: Leaf = FFMA, **holes: int) -> dict[str, set[int]]:
    """The lengths of the runs that are copied, by the name of their source."""
    tile = (32, 32, 16, 16, 32) if leaf.is_matrix else (32, 32, 4, 4, 16)
    tiling = replace(Tiling(*tile, 2, 1, 0), **holes)
    kernel = lower_gpu_contraction(fitted(leaf, task), tiling, "k")
    found: dict[str, set[int]] = {}
    for stmt in walk(kernel.program.body):
        if isinstance(stmt, Copy):
            found.setdefault(stmt.source.name, set()).add(stmt.elements)
    return found


def test_runs_are_as_long_as_addresses_allow() -> None:
    assert copies(matmul_relu(40, 40, 48)) == {"a": {4}, "packed_b": {4}}
    assert copies(matmul_relu(40, 40, 50)) == {"a": {2}, "packed_b": {4}}
    assert copies(matmul_relu(40, 41, 51)) == {"a": {1}, "packed_b": {4}}
    assert copies(product(40, 42, 48)) == {"a": {4}, "b": {2}}
    assert copies(transposed_product(40, 40, 48)) == {"a": {4}, "b": {1}}
    assert copies(halves(40, 40, 48), MMA) == {"a": {8}, "packed_b": {8}}
    assert copies(halves(40, 40, 49), MMA) == {"packed_b": {8}}
    assert copies(half_convolution(), MMA) == {"x": {8}, "packed_b": {8}}
    assert copies(scaled(40, 40, 48)) == {"packed_b": {4}}


def test_a_condition_of_a_whole_run_is_that_of_its_copy() -> None:
    task = Windows((7, 7), 16, 40, border=False).task
    kernel = lower_gpu_contraction(fitted(FFMA, task), Tiling(32, 32, 4, 4, 16, 2, 1, 0), "k")
    runs = [s for s in walk(kernel.program.body) if isinstance(s, Copy) and s.source.name == "x"]
    assert runs
    assert all(s.elements == 4 and " and " in str(s.valid) for s in runs)


@pytest.mark.parametrize("case", ["convolution", "halves", "both move", "constant rows"])
def test_inputs_are_awaited_once_and_by_all(case: str) -> None:
    leaf, make = CASES[case]
    form = fitted(leaf, make())
    for holes in candidates(gpu_holes(form, TARGET), 4, seed=0):
        (nest,) = thread_nests(lower_gpu_contraction(form, Tiling(**holes), "k").program)
        said = [
            sum(isinstance(s, kind) for s in walk(nest.body)) for kind in (AwaitInputs, LaunchNext)
        ]
        assert said == [1, int(form.leaf.is_matrix)]


# --------------------------------------------------------------------------------------- space
LAYERS = {
    "14x14": Windows((14, 14), 256, 256),
    "56x56": Windows((56, 56), 64, 64, kernel=1, pad=0),
    "7x7": Windows((7, 7), 512, 2048, kernel=1, pad=0),
    "image": Windows((224, 224), 3, 64, kernel=7, pad=3, stride=2),
}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("layer", LAYERS)
def test_all_candidates_are_legal_and_priced(layer: str, preset: str) -> None:
    target = PRESETS[preset]
    form = fitted(FFMA, LAYERS[layer].task)
    space = gpu_holes(form, target)
    assert 50 < len(space["bm"]) < 2000
    assert is_legal(form, target, space).all()
    if target.cluster_limit == 1:
        assert (space["splits"] == 1).all()
    empty = space["bk"] * -(-form.depth // (space["bk"] * space["splits"])) * (space["splits"] - 1)
    assert (empty < form.depth).all()
    costs = gpu_costs(form, target, space)
    assert costs.shape == space["bm"].shape
    assert np.isfinite(costs).all()
    assert (costs > 1000).all()


def test_illegal_candidates_are_refused() -> None:
    form = fitted(FFMA, matmul_relu(256, 256, 512))
    good = Tiling(32, 64, 4, 4, 32, 3, 2, 0)
    bad = (
        replace(good, bm=128, bn=128, tm=8, tn=8, bk=64, splits=1, stages=9),  # shared memory
        replace(good, tm=2, tn=1),  # no whole vectors
        replace(good, bm=24),  # warps of threads that are not beside each other
        replace(good, splits=16, bk=64),  # a block without terms
        replace(good, stages=40),  # more stages than steps
    )
    rows = [good, *bad]
    population = {name: np.array([getattr(t, name) for t in rows]) for name in vars(good)}
    assert is_legal(form, TARGET, population).tolist() == [True, *[False] * len(bad)]


def test_long_sums_of_few_results_are_split() -> None:
    form = fitted(FFMA, Windows((7, 7), 512, 512).task)
    space = gpu_holes(form, TARGET)
    costs = gpu_costs(form, TARGET, space)
    assert space["splits"][np.argmin(costs)] >= 4
    assert costs[space["splits"] == 1].min() > 1.5 * costs.min()


# -------------------------------------------------------------------------------------- golden
def test_program_of_threads(golden: Callable[[str], None]) -> None:
    task = Windows((7, 7), 16, 40, epilogue=True).task
    tiling = Tiling(32, 32, 4, 4, 16, 3, 2, 1)
    golden(str(lower_gpu_contraction(fitted(FFMA, task), tiling, "kernel").program))


def test_program_of_warps(golden: Callable[[str], None]) -> None:
    tiling = Tiling(32, 64, 16, 32, 64, 3, 1, 0)
    golden(str(lower_gpu_contraction(fitted(MMA, halves(49, 100, 256)), tiling, "kernel").program))


@pytest.mark.parametrize("leaf", [FFMA, TF32], ids=lambda leaf: leaf.name)
def test_rows_behind_the_last_are_zeros_and_not_read(leaf: Leaf) -> None:
    """All blocks would read the same row in their place, and wait for each other."""
    form = find_gpu_contraction(product(49, 64, 64), leaf)
    assert form is not None
    space = gpu_holes(form, TARGET)
    row = int(np.flatnonzero((space["bm"] == 64) & (space["bk"] * space["splits"] == 64))[0])
    tiling = Tiling(**{name: int(column[row]) for name, column in space.items()})
    program = lower_gpu_contraction(form, tiling, "kernel").program
    copies = [s for s in walk(program.body) if isinstance(s, Copy)]
    of_rows = [str(s.valid) for s in copies if s.source.name == "a"]
    assert of_rows
    assert all("< 49" in valid for valid in of_rows)
    # The address is one of the buffer all the same, so that the text need not mask it.
    text, _ = emit_program(program, TARGET)
    assert "min<int>" in text
    assert "& -(int)" not in text
