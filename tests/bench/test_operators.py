"""The operator suite: its models, and what is kept between runs."""

from __future__ import annotations

import argparse
import importlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from harness.report import Report, measured
from harness.turns import Measurement
from whet.frontend.onnx import import_model
from zoo.operators import FAMILIES, Case, cases

OUTPUTS = {
    "C1D": (1, 128, 128), "C2D": (1, 64, 112, 112), "C3D": (1, 64, 8, 112, 112),
    "GMM": (1, 128, 128), "GRP": (1, 128, 28, 28), "DIL": (1, 64, 109, 109),
    "DEP": (1, 32, 112, 112), "T2D": (1, 256, 8, 8), "CAP": (1, 8, 8, 4, 4, 32), "NRM": (1,),
    "ConvLayer": (1, 64, 112, 112), "TBS": (1, 12, 128, 128),
}  # fmt: skip


def test_there_are_96_cases() -> None:
    found = list(cases())
    assert len(found) == len(set(map(str, found))) == 96
    assert Counter(c.batch for c in found) == {1: 48, 16: 48}


@pytest.mark.parametrize("family", FAMILIES)
def test_models_are_what_they_should_be(family: str) -> None:
    model = Case(family, 0, 1).model()
    onnx.checker.check_model(model)
    (output,) = import_model(model).graph.outputs
    assert output.tensor_type.shape == OUTPUTS[family]


def row(case: str, ratio: float) -> dict[str, object]:
    times = {n: Measurement(s, s, s, s, 9, 3, 3) for n, s in (("whet", 1e-3), ("torch", 1e-3))}
    return {"case": case, "times": times, "errors": {"whet": 1e-7}, "best_peer": "torch",
            "ratio": ratio, "roofline_s": 5e-4, "trials": 64, "tuning_s": 9.0, "default_s": 2e-3,
            "tuned_s": 1e-3}  # fmt: skip


def test_what_was_measured_is_kept_and_reported(tmp_path: Path) -> None:
    script = importlib.import_module("operators")
    state = tmp_path / "cases.jsonl"
    lines = [row("DEP_0_b1", 9.0), row("DEP_0_b1", 1.0), row("DEP_1_b1", 4.0)]
    state.write_text("".join(json.dumps(r, default=measured) + "\n" for r in lines))
    done = script.read_state(state)
    assert set(done) == {"DEP_0_b1", "DEP_1_b1"}
    report = Report("Operators", {})
    given = argparse.Namespace(peers=["torch"])
    script.add_results(report, list(cases(["DEP"], [1])), done, 2, given)
    goals = {g.what: g for g in report.goals}
    assert goals["DEP: geometric mean"].found == pytest.approx(2.0)  # the later line counts
    assert goals["2 cases: geometric mean"].met
    assert "DEP_2_b1, 2 threads: not measured" in report.notes
    assert "50.0" in report.tables[0]  # % of roofline


def test_every_library_has_one_vote_on_what_is_right() -> None:
    """Two variants that are wrong alike do not make their error the yardstick."""
    consensus = importlib.import_module("operators").consensus
    right, wrong = np.linspace(0.0, 1.0, 8, dtype=np.float32), np.float32(-3e-3)
    found = {"whet": [right * np.float32(1 + 1e-6)], "onnxruntime": [right],
             "torch": [right + wrong], "torch_channels_last": [right + wrong]}  # fmt: skip
    np.testing.assert_allclose(consensus(found)[0], right, rtol=1e-5)
    del found["torch"]
    np.testing.assert_allclose(consensus(found)[0], right, rtol=1e-5)
    alone = {"torch_channels_last": [right + wrong]}
    assert consensus(alone) == alone["torch_channels_last"]
