"""The fit of the law of contractions on GPUs: times that are made up are found again."""

from __future__ import annotations

import dataclasses
import json
import lzma
from dataclasses import replace
from pathlib import Path

import lightgbm
import numpy as np
import pytest

import gpu_law
from harness.gpu_fit import fit
from harness.gpu_kernels import TARGET, Layer, Shape, form_of, read_kernels, shapes
from harness.gpu_trees import lines_of
from whet.core.types import Array
from whet.schedule.cost.trees import read_trees
from whet.schedule.families.gpu_contraction.estimate import estimate
from whet.schedule.families.gpu_contraction.law import LAWS, Law
from whet.schedule.families.gpu_contraction.match import TF32, Leaf
from whet.schedule.families.gpu_contraction.resources import registers_of, shared_bytes
from whet.schedule.families.gpu_contraction.space import HOLES, gpu_holes

ROOT = Path(__file__).resolve().parents[2]
TRUE = Law(
    start=300, late=700, spread=0.4, wave=1000, step=60, arrival=120, rate=2000, hidden=0.5,
    reuse=20, near=80, store=1500, finish=90, split=600, rank=40, crowd=100,
)  # fmt: skip
SHAPES = [
    Shape(3136, 64, 576), Shape(784, 512, 256), Shape(784, 128, 1152), Shape(196, 256, 2304),
    Shape(196, 1024, 512), Shape(49, 2048, 1024), Shape(128, 768, 3072), Shape(128, 2304, 768),
]  # fmt: skip


def made_up(leaf: Leaf, shape: Shape, law: Law, rng: np.random.Generator) -> Layer:
    """Some candidates of a layer that take as long as a law says, but with two stages longer."""
    form = form_of(leaf, shape)
    space = gpu_holes(form, TARGET)
    chosen = np.sort(rng.permutation(len(space["bm"]))[:120])
    holes = {name: column[chosen] for name, column in space.items()}
    sizes = np.stack([holes[name] for name in HOLES[:-1]], axis=1)
    sizes = np.unique(sizes, axis=0)
    holes = dict(zip(HOLES, sizes.T))
    layer = Layer(
        leaf, str(shape), "ResNet-50", shape, sizes, {},
        registers_of(leaf, 4, holes), shared_bytes(form, holes),
    )  # fmt: skip
    times: dict[str, Array] = {}
    for launch in ("us", "pdl"):
        work = layer.work(launch, layer.registers)
        total = estimate(work, law, leaf, TARGET, layer.holes(launch))
        times[launch] = total * np.where(holes["stages"] == 3, 1.15, 1.0)
    return replace(layer, times=times)


def test_a_law_is_found_again_and_trees_find_what_it_cannot_say() -> None:
    rng = np.random.default_rng(1)
    layers = [made_up(TF32, shape, TRUE, rng) for shape in SHAPES]
    model = fit(TF32, layers)
    unseen = made_up(TF32, Shape(784, 256, 512), TRUE, rng)
    times = unseen.times["pdl"]
    by_law, with_trees = model.by_law(unseen), model.expected(unseen)
    errors = [float(np.std(np.log(expected / times))) for expected in (by_law, with_trees)]
    assert errors[0] < 0.1
    assert errors[1] < 0.6 * errors[0]
    found = gpu_law.verdict(with_trees, times, np.ones(len(times), bool))
    assert found is not None
    assert found.best_of_8 < 1.01
    again = fit(TF32, layers)
    assert (again.law, again.lines) == (model.law, model.lines)


def test_trees_are_those_of_lightgbm() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (2000, 5)).astype(np.float64)
    y = x[:, 0] * (x[:, 1] > 3) - 0.3 * x[:, 4]
    booster = lightgbm.train(
        {"num_leaves": 8, "verbose": -1, "num_threads": 1}, lightgbm.Dataset(x, y), 40
    )
    trees = read_trees("abcde", lines_of(booster, "abcde"))
    rows = rng.uniform(-1, 10, (1500, 5))
    want = booster.predict(rows, num_threads=1)
    np.testing.assert_allclose(trees.predict(rows), want, atol=0.02)
    assert trees.predict(rows[:0]).shape == (0,)


def test_layers_of_one_shape_are_left_out_together() -> None:
    rng = np.random.default_rng(2)
    layers = [made_up(TF32, shape, TRUE, rng) for shape in (SHAPES[0], SHAPES[1], SHAPES[0])]
    parts = [(len(taught), len(judged)) for taught, judged in gpu_law.folds(layers)]
    assert parts == [(1, 2), (2, 1)]


def test_verdicts() -> None:
    times = np.array([3.0, 1.0, 2.0, 4.0])
    ranked = np.array([1.0, 4.0, 2.0, 3.0])
    every = np.ones(4, bool)
    assert gpu_law.verdict(ranked, times, every) == gpu_law.Verdict(3.0, 1.0)
    assert gpu_law.verdict(ranked, times, times > 1) == gpu_law.Verdict(1.5, 1.0)
    assert gpu_law.verdict(ranked, times, times > 9) is None
    assert gpu_law.behind([1.0, 1.21]) == pytest.approx((10.0, 21.0))


# ----------------------------------------------------------------------------------------- data
def test_kernels_are_read(tmp_path: Path) -> None:
    one = {"kind": "f16", "name": "l3_3x3", "BM": 64, "BN": 64, "BK": 64, "WM": 2, "WN": 4,
           "STG": 4, "S": 2, "regs": 72, "smem": 4 * 128 * 144, "us": 6.0, "pdl": 5.0}  # fmt: skip
    rows = [
        one, one | {"us": 7.0, "pdl": 5.2}, one | {"us": 6.5, "pdl": 9.0},
        one | {"smem": 4 * 128 * 128},  # rows of 128 bytes
        one | {"S": 4, "bad": 1},
        one | {"S": 4, "kind": "3xw"},
        {**one, "kind": "simt", "TM": 4, "TN": 4, "smem": 1, "name": "qkv"},
    ]  # fmt: skip
    path = tmp_path / "kernels.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, rows)).encode()))
    found = read_kernels(path)
    (layer,) = found["mma"]
    assert layer.sizes.tolist() == [[64, 64, 32, 16, 64, 4, 2]]
    assert layer.times["us"].tolist() == [6500.0]
    assert layer.times["pdl"].tolist() == [5200.0]
    assert layer.shape == Shape(196, 256, 2304)
    work = layer.work("pdl", layer.registers)
    assert (work.blocks.item(), work.steps.item(), work.threads.item()) == (32, 18, 256)
    assert [name for name, layers in found.items() if layers] == ["ffma", "mma"]


def test_layers_have_the_shapes_of_their_networks() -> None:
    known = shapes("tf32")
    assert known["l2_3x3"] == (Shape(784, 128, 1152), "ResNet-50")
    assert known["l4_in"] == (Shape(196, 512, 1024), "ResNet-50")
    assert known["conv1"][0] == Shape(12544, 64, 224)
    assert known["ffn2"] == (Shape(128, 768, 3072), "BERT-base")
    assert known["e56_24_144"] == (Shape(3136, 160, 32), "MobileNet-V2")
    assert len(known) == 27 + 20


# -------------------------------------------------------------------------------------- results
def figures() -> dict[tuple[str, str], str]:
    """Cells of the documentation's table, from the report that was kept."""
    kept = json.loads((ROOT / "bench/results/gpu_law.json").read_text())
    return {
        (row["leaf"], f"{row['ranking']} {row['among']} {row['figure']}"):
        f"{row['percent']:.1f} ({row['worst_percent']:.0f})"
        for row in kept["rows"] if "figure" in row
    }  # fmt: skip


@pytest.mark.parametrize("page", ["docs/gpus.md"])
def test_the_documentation_says_what_was_found(page: str) -> None:
    found, text = figures(), (ROOT / page).read_text()
    for leaf in LAWS:
        cells = [
            found[leaf, f"{ranking} all {figure}"]
            for ranking in ("law", "law and trees")
            for figure in ("first", "best_of_8")
        ]
        assert f"| {leaf} | {' | '.join(cells)} |" in text


def test_the_shipped_laws_are_those_of_the_report() -> None:
    text = (ROOT / "bench/results/gpu_law.md").read_text()
    assert "other constants" not in text
    kept = json.loads((ROOT / "bench/results/gpu_law.json").read_text())
    assert kept["settings"]["laws"] == {
        name: dataclasses.asdict(law) for name, law in LAWS.items()
    }  # fmt: skip
