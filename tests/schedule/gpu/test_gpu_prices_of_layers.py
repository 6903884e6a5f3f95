"""Prices of contractions: what they rest on, and that they hold beyond the layers they rest on."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from tests.schedule.gpu.lockstep_kernels import TARGET
from tests.schedule.small_tasks import make_task
from whet.core.dtypes import DType, f16, f32, f64
from whet.core.errors import WhetError
from whet.core.gpu import PRESETS, GpuTarget
from whet.core.types import Array
from whet.ir.expr import Expr, cast
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.families.gpu_contraction.correction import (
    MARGIN,
    columns_of,
    read_correction,
    shipped_correction,
)
from whet.schedule.families.gpu_contraction.estimate import estimate
from whet.schedule.families.gpu_contraction.law import LAWS
from whet.schedule.families.gpu_contraction.match import (
    FFMA,
    FP32X3,
    MMA,
    TF32,
    GpuContraction,
    Leaf,
    find_gpu_contraction,
)
from whet.schedule.families.gpu_contraction.placement import busiest, part_sizes
from whet.schedule.families.gpu_contraction.price import gpu_costs, work_of
from whet.schedule.families.gpu_contraction.roof import roof
from whet.schedule.families.gpu_contraction.space import gpu_holes
from whet.schedule.program.triggers import AT_END, NEVER
from whet.schedule.space.sketch import Population

LEAVES = {leaf.name: leaf for leaf in (FFMA, MMA, TF32, FP32X3)}
GROWING = [
    (1, 8, 16), (49, 64, 64), (128, 768, 768), (784, 768, 2304), (50176, 768, 2304),
    (65536, 4096, 4096),
]  # fmt: skip
UNLIKE = {
    "a row": (1, 1000, 2048),
    "a long volume": (64 * 56 * 56, 64, 64 * 27),
    "a large product": (4096, 4096, 4096),
    "a short sum": (3136, 64, 8),
    "few multiply-adds": (49, 64, 64),
}
"""Products that are not like those of measured layers."""


def fitted(shape: tuple[int, ...], leaf: Leaf, dtype: DType | None = None) -> GpuContraction:
    """A product of so many rows, columns and depth, or as many of them as a fourth number says."""
    m, n, k, *heads = shape
    dtype = dtype or (f16 if leaf is MMA else f32)
    total = f64 if dtype is f64 else f32
    a, b = placeholder((*heads, m, k), dtype, "a"), placeholder((*heads, k, n), dtype, "b")
    r = reduce_axis(k, "k")

    def element(*at: Expr) -> Expr:
        *h, i, j = at
        return cast(sum_(cast(a[*h, i, r], total) * cast(b[*h, r, j], total), r), dtype)

    y = compute((*heads, m, n), element, "y")
    form = find_gpu_contraction(make_task(y, constants=[b]), leaf)
    assert form is not None
    return form


def by_law(form: GpuContraction, target: GpuTarget, holes: Population) -> Array:
    """Prices without what was learned."""
    work = work_of(form, target, holes)
    total = estimate(work, LAWS[form.leaf.name], form.leaf, target, holes)
    least = roof(work, form.leaf, form.a.dtype.itemsize, target, holes)
    return np.maximum(total, least) + (holes["trigger"] == AT_END)


# --------------------------------------------------------------------------------------- prices
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", LEAVES)
def test_prices_are_possible(name: str, preset: str) -> None:
    """Larger products take longer, and none is faster than its multiply-adds allow."""
    leaf, target = LEAVES[name], replace(PRESETS[preset], precision=LEAVES[name].precision)
    rate = {"ffma": 128, "mma": 1024, "tf32": 512, "fp32x3": 512 / 3}[name]
    peak = rate * target.clock_ghz * target.processors
    least = []
    for m, n, k in GROWING:
        form = fitted((m, n, k), leaf)
        space = gpu_holes(form, target)
        costs = gpu_costs(form, target, space)
        assert np.isfinite(costs).all()
        assert (costs > 1000).all()
        np.testing.assert_array_equal(costs, gpu_costs(form, target, space))
        least.append(float(costs.min()))
        assert costs.min() > m * n * k / peak
    assert least == sorted(least)


@pytest.mark.parametrize("name", LEAVES)
def test_the_law_grows_with_every_extent(name: str) -> None:
    leaf = LEAVES[name]
    holes = gpu_holes(fitted((196, 256, 1152), leaf), TARGET)
    before = by_law(fitted((196, 256, 1152), leaf), TARGET, holes)
    for larger in ((392, 256, 1152), (196, 512, 1152), (196, 256, 2304)):
        assert (by_law(fitted(larger, leaf), TARGET, holes) >= before).all()


def test_early_launches_save_time_where_they_find_no_room_to_pile_up() -> None:
    form = fitted((784, 128, 1152), TF32)
    early = gpu_holes(form, TARGET)
    late = {**early, "trigger": np.full(len(early["bm"]), NEVER)}
    at_end = early["trigger"] == AT_END
    gain = by_law(form, TARGET, late) - by_law(form, TARGET, early)
    assert 0 < (gain[~at_end] > 0).mean() < 1
    # When the next kernel may come, at the start or at the end, decides between equals alone.
    np.testing.assert_allclose(gain[~at_end] - gain[at_end], 1.0)


# ------------------------------------------------------------------------------------ placement
@pytest.mark.parametrize(
    ("blocks", "cluster", "each"),
    [
        (132, 1, 1), (133, 1, 2), (128, 2, 1), (134, 2, 2), (112, 8, 1), (120, 8, 1), (128, 8, 2),
        (240, 8, 2), (256, 8, 3), (112, 4, 1), (128, 4, 2), (96, 16, 1), (128, 16, 2), (96, 6, 1),
        (108, 6, 2),
    ],
)  # fmt: skip
def test_clusters_stay_together(blocks: int, cluster: int, each: int) -> None:
    found = busiest(np.array([blocks]), np.array([cluster]), TARGET)
    assert found.tolist() == [each]


def test_the_busiest_processor_has_no_block_too_many() -> None:
    rng = np.random.default_rng(0)
    cluster = rng.choice([1, 2, 3, 4, 6, 8, 16], 500)
    blocks = cluster * rng.integers(1, 400, 500)
    for target in (TARGET, replace(TARGET, processors=114), replace(TARGET, processors=20)):
        sizes = np.array(part_sizes(target))
        for b, c, found in zip(blocks, cluster, busiest(blocks, cluster, target), strict=True):
            room = [
                target.processors * e // c if c <= 2 else int((sizes * e // c).sum())
                for e in (found - 1, found)
            ]
            assert room[0] < b // c <= room[1]


# ----------------------------------------------------------------------------------- correction
@pytest.mark.parametrize("name", LEAVES)
def test_corrections_are_within_their_limit(name: str) -> None:
    form = fitted((196, 256, 1152), LEAVES[name])
    space = gpu_holes(form, TARGET)
    factors = np.log(gpu_costs(form, TARGET, space) / by_law(form, TARGET, space))
    assert np.ptp(factors) > 0.02
    assert (
        np.abs(factors).max() <= shipped_correction(name).limit + 1e-3
    )  # the trigger's nanosecond


@pytest.mark.parametrize("shape", UNLIKE.values(), ids=UNLIKE)
@pytest.mark.parametrize("name", LEAVES)
def test_what_was_never_measured_is_left_to_the_law(name: str, shape: tuple[int, ...]) -> None:
    form = fitted(shape, LEAVES[name])
    space = gpu_holes(form, TARGET)
    np.testing.assert_array_equal(gpu_costs(form, TARGET, space), by_law(form, TARGET, space))


def test_other_targets_types_and_many_products_are_left_to_the_law() -> None:
    shape = (196, 256, 1152)
    cases = [
        (fitted(shape, FFMA), PRESETS["cuda-sm_80"]),
        (fitted(shape, FFMA, f64), TARGET),
        (fitted((*shape, 2), FFMA), TARGET),
    ]
    for form, target in cases:
        space = gpu_holes(form, target)
        np.testing.assert_array_equal(gpu_costs(form, target, space), by_law(form, target, space))


@pytest.mark.parametrize("name", LEAVES)
def test_shipped_corrections_ask_about_columns_that_there_are(name: str) -> None:
    correction = shipped_correction(name)
    form = fitted((196, 256, 1152), LEAVES[name])
    space = gpu_holes(form, TARGET)
    law, work = LAWS[name], work_of(form, TARGET, space)
    total = estimate(work, law, form.leaf, TARGET, space)
    columns = columns_of(total, work, law, TARGET, space, np.asarray(196))
    assert set(correction.trees.columns) <= set(columns)
    assert all(np.isfinite(column).all() for column in columns.values())
    assert correction.knows(196, 256, 1152)
    least = [int(n) for n in correction.least[:3]]
    assert not correction.knows(least[0] // (2 * MARGIN), 2304, 768)


def test_corrections_are_small() -> None:
    folder = resources.files("whet.schedule.families.gpu_contraction").joinpath("corrections")
    sizes = {entry.name: len(entry.read_bytes()) for entry in folder.iterdir()}
    assert sizes.keys() == {f"{name}.txt" for name in LEAVES}
    assert sum(sizes.values()) < 300_000


CORRECTION = (
    "least 1 1 1 1\nmost 9 9 9 729\nlimit 0.4\ncolumns each stages\n"
    "tree each<=1.5 -0.5 stages<=2.5 0.25 0.125\ntree stages<=4 0 0.5\n"
)


def test_corrections_are_read_as_they_are_written() -> None:
    rows = np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [1.5, 5.0], [99.0, 5.0]])
    want = np.exp([-0.4, 0.25, 0.125, 0.0, 0.4])
    found = read_correction(CORRECTION)
    np.testing.assert_allclose(found.factors(rows), want)
    assert found.knows(1, 9, 18)
    assert not found.knows(1, 9, 19)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("limit 0.4\n", ""), "other lines"),
        (("least 1 1 1 1", "least 1 1 1"), "more or fewer numbers"),
        (("limit 0.4", "limit x"), "where a number should be"),
        (("each<=1.5", "size<=1.5"), "'size', which is no column"),
        (("stages<=4 0 0.5", "stages<=4 0"), "ends too early"),
        (("stages<=4 0 0.5", "stages<=4 0 0.5 1"), "behind its end"),
        (("stages<=4 0 0.5", "stages<=4 0 inf"), "'inf' where a number should be"),
        (("stages<=4 0 0.5", "stages<=y 0 1"), "'y' where a number should be"),
        (("stages<=4 0 0.5", "each<=1 " * 8 + "0 " * 9), "more than 8 leaves"),
    ],
)
def test_damaged_corrections_are_refused(change: tuple[str, str], message: str) -> None:
    damaged = CORRECTION.replace(*change)
    assert damaged != CORRECTION
    with pytest.raises(WhetError, match=f"WH2122.*{message}"):
        read_correction(damaged)


def test_only_prices_of_gpus_read_corrections_and_none_needs_lightgbm() -> None:
    """In a process of its own, where nobody else has asked."""
    script = """
import sys
from tests.schedule.gpu.test_gpu_prices_of_layers import FFMA, TARGET, fitted
from whet.core.cpu import PRESETS
from whet.schedule.default import default_choice
from whet.schedule.families.gpu_contraction.correction import shipped_correction
task = fitted((196, 256, 1152), FFMA).task
default_choice(task, PRESETS["x86-64-v3"], 1)
assert shipped_correction.cache_info().currsize == 0
assert default_choice(task, TARGET, 1).sketch.name == "gpu_ffma"
assert shipped_correction.cache_info().currsize > 0
assert "lightgbm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
