"""Tuning from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import whet
from whet.core.errors import UsageError
from whet.db.store import Database
from whet.tune.report import Report, Status

SHAPES = {"x": (16, 4)}


def test_a_model_and_its_artifact_are_tuned(
    linear: onnx.ModelProto, records: Path, tmp_path: Path, notes: list[str]
) -> None:
    seen: list[int] = []

    def watch(reports: object, status: Status) -> None:
        seen.append(status.trials)

    reports = whet.tune_model(linear, SHAPES, 1, "60s", trials=2, note=notes.append, watch=watch)
    assert all(isinstance(r, Report) for r in reports)
    assert sum(r.trials for r in reports) == 2 == seen[-1]
    with Database(records) as database:
        measured = sum(database.stats().measurements.values())
    assert measured >= 2
    f = whet.compile(linear, SHAPES, 1, note=notes.append)
    x, w = np.ones((16, 4), np.float32), np.ones((4, 3), np.float32)
    assert np.array_equal(f(x, w)[0], x @ w)
    f.save(tmp_path / "m.whet")
    again = whet.tune_model(tmp_path / "m.whet", threads=1, trials=1, note=notes.append)
    assert [r.name for r in again] == [r.name for r in reports]


@pytest.mark.parametrize("trials", [0, -1, 2.5, "4", True])
def test_trials_that_make_no_sense(linear: onnx.ModelProto, trials: object) -> None:
    with pytest.raises(UsageError, match="WH1002 'trials' must be a positive number"):
        whet.tune_model(linear, SHAPES, trials=trials)  # type: ignore[arg-type]
