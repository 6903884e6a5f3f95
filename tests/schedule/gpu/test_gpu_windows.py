"""Windows of contractions on GPUs: what overlaps is read once, and the sum stays what it is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.schedule.gpu.test_gpu_contraction import fitted, half_convolution, halves, results_of
from tests.schedule.small_tasks import matmul_relu
from tests.schedule.windows import Windows
from whet.ir.affine import substitute
from whet.ir.expr import Const, Var, as_expr
from whet.ir.program import walk
from whet.ir.simplify import simplify
from whet.ir.threads import Copy
from whet.schedule.families.gpu_contraction.lower import lower_gpu_contraction
from whet.schedule.families.gpu_contraction.match import FFMA, FP32X3, MMA, TF32, Leaf, Tiling
from whet.schedule.families.gpu_contraction.place import place_of
from whet.schedule.families.gpu_contraction.windows import Window, window_of
from whet.tasks.examples import make_example
from whet.tasks.task import Task


def window_in(task: Task, leaf: Leaf) -> tuple[Window | None, list[int]]:
    """The window of a task's first factor, and the extents of its depth."""
    form = fitted(leaf, task)
    place = place_of(form.a, task)
    assert place is not None
    window = window_of(place, form.contraction.m_axes, form.k_axes)
    return window, [k.extent for k in form.k_axes]


def order(task: Task, bk: int, behind: int = 0) -> list[int]:
    """The tiles of the depth, and those behind it, in the order in which they are multiplied."""
    form = fitted(TF32, task)
    window, _ = window_in(task, TF32)
    assert window is not None
    number = Var("number")
    tile = window.taps_first(number, form.k_axes, bk, tiles := form.depth // bk + behind)
    found = [simplify(substitute(tile, {number: as_expr(n)})) for n in range(tiles)]
    return [int(x.value) for x in found if isinstance(x, Const)]


def test_rows_of_convolutions_overlap_and_those_of_matrices_do_not() -> None:
    one_run, depth = window_in(Windows((9, 9), 16, 40).task, TF32)
    assert depth == [3, 48]  # taps and channels are neighbours in memory
    assert one_run is not None
    assert (one_run.axis.extent, one_run.shift) == (48, 16)
    apart, depth = window_in(Windows((9, 9), 16, 40, border=False).task, TF32)
    assert depth == [3, 3, 16]  # there are conditions between them
    assert apart is not None
    assert (apart.axis.extent, apart.shift) == (3, 1)
    strided, _ = window_in(Windows((9, 9), 16, 40, stride=2).task, TF32)
    assert strided is not None
    assert strided.shift == 32
    assert window_in(Windows((9, 9), 16, 40, kernel=1, pad=0).task, TF32)[0] is None
    assert window_in(Windows((9, 9), 16, 40, kernel=3, stride=3).task, TF32)[0] is None
    assert window_in(matmul_relu(40, 40, 48), FFMA)[0] is None
    assert window_in(halves(40, 40, 48), MMA)[0] is None


@pytest.mark.parametrize("border", [True, False], ids=["one run", "apart"])
def test_taps_come_before_other_channels(border: bool) -> None:
    task = Windows((9, 9), 32, 40, border=border).task
    row = [0, 2, 4, 1, 3, 5]
    assert order(task, 16) == [first + n for first in (0, 6, 12) for n in row]
    assert order(task, 16, behind=2) == list(range(20))
    assert order(task, 32) == list(range(9))
    assert order(task, 48) == list(range(6))  # tiles are not those of single taps


def test_a_stride_that_is_no_divisor_keeps_the_order() -> None:
    assert order(Windows((9, 9), 32, 40, stride=2).task, 16) == list(range(18))


@pytest.mark.parametrize("splits", [1, 2, 5])
@pytest.mark.parametrize("border", [True, False], ids=["one run", "apart"])
@pytest.mark.parametrize("leaf", [TF32, FP32X3], ids=lambda leaf: leaf.name)
def test_the_sum_is_the_same_in_any_order(leaf: Leaf, border: bool, splits: int) -> None:
    """Blocks of a cluster take parts of the order, the last of which goes behind the depth."""
    for channels, stride in itertools.product((16, 32), (1, 2)):
        task = Windows((12, 12), channels, 24, stride=stride, border=border, epilogue=True).task
        tiling = Tiling(128, 32, 64, 16, 8, 3, splits, 0)
        kernel = lower_gpu_contraction(fitted(leaf, task), tiling, "k")
        example = make_example(task, 3)
        found = results_of(kernel, task, example)
        np.testing.assert_array_equal(found, example.outputs[0])


def test_only_windows_of_many_rows_on_tensor_cores_stay_near() -> None:
    def near(leaf: Leaf, task: Task, rows: int = 128) -> set[str]:
        tile = (rows, 32, 32, 16, 16) if leaf.is_matrix else (rows, 32, 8, 4, 16)
        kernel = lower_gpu_contraction(fitted(leaf, task), Tiling(*tile, 2, 1, 0), "k")
        copies = [s for s in walk(kernel.program.body) if isinstance(s, Copy)]
        assert {s.source.name for s in copies} == {"x", "packed_b"}
        return {s.source.name for s in copies if s.near}

    convolution = Windows((7, 7), 16, 40).task
    assert near(TF32, convolution) == {"x"}
    assert near(MMA, half_convolution()) == {"x"}
    assert near(TF32, convolution, rows=64) == set()
    assert near(FFMA, convolution) == set()
    assert near(TF32, Windows((7, 7), 16, 40, kernel=1, pad=0).task) == set()
