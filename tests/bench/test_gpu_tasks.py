"""Tasks of networks on GPUs, one by one: what is tried first, and how times are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpu_tasks
from gpu_tasks import Tried, first_ones, write
from harness.gpu_kernels import read_kernels
from tests.schedule.small_tasks import make_task
from whet.core.dtypes import f32
from whet.core.gpu import PRESETS
from whet.core.outcomes import Outcome
from whet.ir.tensor import placeholder
from whet.measure.results import Measured
from whet.ops.matmul import MatMul
from whet.tune.search import WeightedTask

TARGET = PRESETS["cuda-sm_90a"]


@pytest.fixture
def tried() -> Tried:
    a, b = placeholder((196, 256), f32, "a"), placeholder((256, 128), f32, "b")
    weighted = WeightedTask(make_task(MatMul().compute(a, b), constants=[b]), "product", (2,))
    found = first_ones(weighted, TARGET, 6)
    ends = [Measured(c, Outcome.OK, (1e-6 * (n + 2),)) for n, (_, c) in enumerate(found)]
    ends[2] = Measured(found[2][1], Outcome.WRONG_ANSWER)
    ends[4] = Measured(found[4][1], Outcome.OK, (1e-6,))
    return Tried(weighted, tuple(seconds for seconds, _ in found), tuple(ends))


def test_the_first_ones_are_those_with_the_lowest_prices(tried: Tried) -> None:
    assert list(tried.expected) == sorted(tried.expected)
    assert len({str(end.candidate) for end in tried.ends}) == 6
    assert (tried.first, tried.best) == pytest.approx((2e-6, 1e-6))


def test_what_is_reported(tried: Tried) -> None:
    row = tried.row()
    assert (row["task"], row["times"]) == ("product", 2)
    assert [k["us"] for k in row["kernels"]] == [pytest.approx(2), pytest.approx(3), None,
                                                 pytest.approx(5), pytest.approx(1),
                                                 pytest.approx(7)]  # fmt: skip
    assert row["kernels"][2]["outcome"] == "WRONG_ANSWER"


def test_contractions_are_kept_for_the_law(tried: Tried, tmp_path: Path) -> None:
    path = tmp_path / "kernels.jsonl"
    write(path, "resnet50", [tried])
    write(path, "resnet50", [tried])  # of the same kernels, the median counts
    (layer,) = read_kernels(path)["ffma"]
    assert (layer.shape.rows, layer.shape.columns, layer.shape.depth) == (196, 128, 256)
    assert layer.is_own
    right = [e for e in tried.ends if e.ok and e.candidate.sketch == "gpu_ffma"]
    assert sorted(layer.times["us"]) == pytest.approx(sorted(1e9 * e.seconds for e in right))
    assert len(right) > 2


def test_options() -> None:
    given = gpu_tasks.arguments().parse_args(["--only", "dcgan", "--first", "3"])
    assert (given.only, given.first, given.precision) == (["dcgan"], 3, list(gpu_tasks.PRECISIONS))
