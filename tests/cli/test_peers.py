"""Worker processes and the statistics of turns."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from whet.cli.peers.process import Worker
from whet.cli.peers.turns import ratio, summarize_turns, take_turns
from whet.core import dtypes
from whet.core.errors import WhetError
from whet.runtime.frames import read_frame, write_frame


def test_frames_carry_every_type() -> None:
    arrays = [(np.arange(6) % 2).astype(d.numpy).reshape(2, 3) for d in dtypes.ALL]
    arrays += [np.array(1.5), np.zeros((0, 2), np.int8)]
    pipe = io.BytesIO()
    write_frame(pipe, {"text": "é"}, arrays)
    pipe.seek(0)
    message, found = read_frame(pipe)
    assert message == {"text": "é"}
    for a, b in zip(arrays, found, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    with pytest.raises(EOFError):
        read_frame(pipe)


def test_workers_run_and_take_turns(model: Path) -> None:
    x = np.ones((1, 8), np.float32)
    with Worker("whet", 1) as own, Worker("onnxruntime", 1) as other:
        workers = {"whet": own, "onnxruntime": other}
        for worker in workers.values():
            worker.load(str(model), {"x": x})
        np.testing.assert_allclose(own.run()[0], other.run()[0], rtol=1e-5)
        steps: list[int] = []
        timings = take_turns(workers, 0.02, rounds=3, progress=lambda: steps.append(1))
    assert len(steps) == 6
    assert all(len(t.rounds) == 3 for t in timings.values())


def test_a_failing_worker_is_an_error_not_a_hang(model: Path, tmp_path: Path) -> None:
    with Worker("onnxruntime", 1) as worker:
        with pytest.raises(WhetError, match="onnxruntime: ") as caught:
            worker.load(str(tmp_path / "missing.onnx"), {})
        assert caught.value.code == "WH3005"
        worker.load(str(model), {"x": np.ones((1, 8), np.float32)})  # it is still usable
        worker.process.kill()
        with pytest.raises(WhetError, match="was killed"):
            worker.run()


def test_a_silent_worker_is_ended() -> None:
    with (
        Worker("whet", 1, timeout=0.01) as worker,
        pytest.raises(WhetError, match="no answer within"),
    ):
        worker.load("model.onnx", {})


def test_statistics() -> None:
    fast = summarize_turns([[1.0, 1.0, 5.0], [1.2, 1.2, 1.2]])
    slow = summarize_turns([[2.0, 2.0], [3.6, 3.6]])
    assert fast.median == pytest.approx(1.2)
    assert fast.rounds == (1.0, 1.2)
    assert fast.low <= 1.1 <= fast.high
    assert fast.calls == 6
    found = ratio(slow, fast)
    assert found.value == pytest.approx(2.5)  # rounds: 2 and 3 times as long
    assert (found.low, found.high) == (pytest.approx(2.0), pytest.approx(3.0))
