"""Layers of networks on GPUs: which there are, what is tried of them, and how times are kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness import gpu_layers
from harness.gpu_kernels import own_rows, read_kernels
from harness.gpu_layers import GpuLayer, any_ones, first_ones, layers_of, tables_of
from tools.cuda_on_cpu.backend import gpu_in_this_process
from whet.core.gpu import GpuTarget
from whet.core.outcomes import Outcome
from whet.measure.results import Measured
from whet.schedule.families.gpu_contraction.match import FFMA, TF32, find_gpu_contraction
from whet.schedule.program.triggers import AT_START, NEVER
from zoo.reduced import REDUCED

Reduced = tuple[GpuTarget, list[GpuLayer]]


@pytest.fixture(scope="module")
def reduced() -> Reduced:
    with pytest.MonkeyPatch.context() as patch, gpu_in_this_process(checked=False):
        patch.setattr(gpu_layers, "BUILDERS", {"resnet50": REDUCED["resnet50"]})
        return layers_of("resnet50", "cuda-sm_90a", "tf32")


def test_layers_are_convolutions_and_products_with_weights(reduced: Reduced) -> None:
    _, layers = reduced
    assert len({layer.task.key for layer in layers}) == len(layers) > 5
    assert any(layer.name.startswith("7x7/2 ") for layer in layers)
    assert any(layer.name.startswith("3x3 ") for layer in layers)
    assert any(layer.name.startswith("product ") for layer in layers)
    for layer in layers:
        weights = layer.node.inputs[1].tensor_type
        assert layer.shape.columns * layer.shape.depth == weights.size


def test_the_first_are_those_with_the_least_prices(reduced: Reduced) -> None:
    target, layers = reduced
    tables = tables_of(layers[1].task, target)
    assert {t.sketch for t in tables} == {"gpu_ffma", "gpu_tf32"}
    chosen = {str(c) for c in first_ones(tables, 8)}
    prices = np.sort(np.concatenate([t.costs for t in tables]))
    assert len(chosen) == 8
    for table in tables:
        for row in np.flatnonzero(table.costs < prices[7]):
            assert str(table.candidate(int(row))) in chosen


def test_kernels_on_tensor_cores_are_tried_early_and_late(reduced: Reduced) -> None:
    target, layers = reduced
    tables = tables_of(layers[1].task, target)
    drawn = list(any_ones(tables, 5, target, np.random.default_rng(0)))
    triggers = {
        sketch: [c.holes["trigger"] for c in drawn if c.sketch == sketch]
        for sketch in ("gpu_ffma", "gpu_tf32")
    }
    assert triggers == {"gpu_ffma": [NEVER] * 5, "gpu_tf32": [AT_START, NEVER] * 5}


def test_what_was_measured_is_read_as_it_was(reduced: Reduced, tmp_path: Path) -> None:
    target, layers = reduced
    layer, rng = layers[1], np.random.default_rng(1)
    drawn = list(any_ones(tables_of(layer.task, target), 6, target, rng))
    trials = [Measured(c, Outcome.OK, (1e-6 * (n + 1),)) for n, c in enumerate(drawn)]
    lost = max(n for n, c in enumerate(drawn)
               if c.sketch == "gpu_tf32" and c.holes["trigger"] == NEVER)  # fmt: skip
    trials[lost] = Measured(drawn[lost], Outcome.WRONG_ANSWER)
    lines = []
    for leaf in (FFMA, TF32):
        form = find_gpu_contraction(layer.task, leaf)
        assert form is not None
        mine = [t for t in trials if t.candidate.sketch == f"gpu_{leaf.name}"]
        lines += [json.dumps(r) for r in own_rows(layer.name, "resnet50", form, mine)]
    (tmp_path / "kernels.jsonl").write_text("\n".join(lines))
    found = read_kernels(tmp_path / "kernels.jsonl")
    (by_threads,), (by_warps,) = found["ffma"], found["tf32"]
    assert (len(by_threads), len(by_warps)) == (6, 6)
    assert by_threads.shape == by_warps.shape == layer.shape

    def times(sketch: str, trigger: int) -> list[float]:
        return sorted(
            1000.0 * (n + 1) for n, c in enumerate(drawn)
            if c.sketch == sketch and c.holes["trigger"] == trigger and n != lost
        )  # fmt: skip

    assert sorted(by_threads.times["us"]) == pytest.approx(times("gpu_ffma", NEVER))
    assert sorted(by_warps.times["pdl"]) == pytest.approx(times("gpu_tf32", AT_START))
    # One was not right when it was launched late: of that one, only the other time is known.
    assert sum(np.isnan(by_warps.times["us"])) == 1
    known = by_warps.measured("us")
    assert sorted(known.times["us"]) == pytest.approx(times("gpu_tf32", NEVER))
    assert len(known) == len(known.registers) == len(known.shared) == 5
    assert by_warps.offered().all()
