"""Failures of the compiler itself: the model runs, nobody overlooks it, and a report says why."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import whet
from whet.api import compiler, failures
from whet.build.cpu import assemble
from whet.core.dtypes import f32
from whet.core.errors import InternalError, NoCodeError, WhetWarning
from whet.core.types import TensorType
from whet.frontend.onnx import importer
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.joint import kept
from whet.ops.gather import Gather
from whet.tasks import plan as plan_module

Configured = Callable[..., None]

X = np.arange(16, dtype=np.float32).reshape(2, 8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 8] x) => (float[N, 64] y) { h = MatMul(x, w)  t = Add(h, b)  y = Relu(t) }
    """)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (8, 64)), ("b", (64,))):
        value = rng.standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture
def lenient(configured: Configured, tmp_path: Path) -> Path:
    """Settings as a user has them, with a cache of this test alone; graphs stay as they are, so
    that nothing is planned twice."""
    configured(STRICT=None, CACHE_DIR=tmp_path / "cache")
    return tmp_path / "cache" / "report"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise KeyError("x7")

    monkeypatch.setattr(plan_module, "plan_segment", fail)


def expected(model: Path) -> np.ndarray:
    graph = whet.compile(model, {"x": (2, 8)}, note=lambda message: None).graph
    (y,) = interpret(graph, (X,))
    return y


def read_report(folder: Path) -> dict[str, Any]:
    (path,) = folder.iterdir()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_interpreter_goes_on_with_a_warning(lenient: Path, broken: None, model: Path) -> None:
    with pytest.warns(WhetWarning) as caught:
        f = whet.compile(model, {"x": (2, 8)})
    (warning,) = caught
    (report,) = lenient.iterdir()
    for part in ("runs in the interpreter", "KeyError: 'x7'", "test_failures.py:", str(report)):
        assert part in str(warning.message)
    assert f.engine == "interpreter"
    assert "engine: interpreter" in repr(f)
    assert f.describe()[0] == "not native: all operators run in the interpreter"
    assert str(report) in "\n".join(f.describe())
    np.testing.assert_allclose(f(X), expected(model), rtol=1e-6)


def test_a_search_that_fails_leaves_the_graph_as_it_is(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    configured(STRICT=None, CACHE_DIR=tmp_path / "cache", REWRITE_SECONDS=2)

    def fail(*args: object) -> None:
        raise KeyError("x7")

    monkeypatch.setattr(kept, "search", fail)
    with pytest.warns(WhetWarning, match="cheaper graph") as caught:
        f = whet.compile(model, {"x": (2, 8)})
    (warning,) = caught
    assert "KeyError: 'x7'" in str(warning.message)
    assert f.engine == "native"
    np.testing.assert_allclose(f(X), interpret(f.graph, (X,))[0], rtol=1e-5)


def test_who_takes_notes_is_told(lenient: Path, broken: None, model: Path) -> None:
    notes: list[str] = []
    whet.compile(model, {"x": (2, 8)}, note=notes.append)
    assert len([n for n in notes if "whet failed to compile the model" in n]) == 1


def test_the_report_holds_the_graph_and_no_large_weights(
    lenient: Path, broken: None, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "SMALL_BYTES", 512)
    with pytest.warns(WhetWarning):
        f = whet.compile(model, {"x": (2, 8)}, threads=3, numerics="exact")
    report = read_report(lenient)
    assert report["whet"] == whet.__version__
    assert report["options"]["threads"] == 3
    assert report["options"]["numerics"] == "exact"
    assert json.loads(report["options"]["target"])["vector_bits"] >= 128
    assert "KeyError: 'x7'" in report["traceback"][-1]
    kept = {tuple(a["shape"]): a.get("data") for a in report["arrays"].values()}
    assert kept[8, 64] is None
    assert len(base64.b64decode(kept[(64,)])) == 256
    # All that is needed to look for the failure again: a graph of the same types.
    again = failures.reported_graph(report)
    assert [str(n.op) for n in again.nodes] == [str(n.op) for n in f.graph.nodes]
    same = {c.type for c in again.constants if c.digest in {d.digest for d in f.graph.constants}}
    assert [t.shape for t in same] == [(64,)]


def test_integers_in_a_report_stay_in_their_range(
    lenient: Path, broken: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((9, 4), f32))
    rows = np.random.default_rng(7).integers(-9, 9, 1000)
    graph = Graph((x,), (b.one(Gather(0), x, b.constant(rows)),), ("y",))
    with pytest.warns(WhetWarning):
        whet.compile(graph)
    again = failures.reported_graph(read_report(lenient))
    (stand_in,) = (c.array for c in again.constants)
    assert stand_in.dtype == np.int64
    assert not np.array_equal(stand_in, rows)
    assert (stand_in.min(), stand_in.max()) == (-9, 8)


def test_the_number_of_reports_is_bounded(
    lenient: Path, broken: None, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.api.failures.KEPT_REPORTS", 2)
    for rows in range(1, 5):
        with pytest.warns(WhetWarning):
            whet.compile(model, {"x": (rows, 8)})
    assert len(list(lenient.iterdir())) == 2


def test_strict_settings_show_the_failure_itself(
    configured: Configured, lenient: Path, broken: None, model: Path
) -> None:
    configured(STRICT=1)
    with pytest.raises(KeyError, match="x7"):
        whet.compile(model, {"x": (2, 8)})


@pytest.mark.parametrize(
    ("error", "falls_back"),
    [
        (RecursionError("deep"), True),
        (NoCodeError("WH1303", "there is no code"), True),
        (AssertionError(), True),
        (MemoryError(), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_which_errors_end_in_the_interpreter(
    lenient: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    falls_back: bool,
) -> None:
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(assemble, "bind_plan", fail)
    notes: list[str] = []
    if not falls_back:
        with pytest.raises(type(error)):
            whet.compile(model, {"x": (2, 8)}, note=notes.append)
        assert not lenient.exists()
        return
    f = whet.compile(model, {"x": (2, 8)}, note=notes.append)
    assert f.engine == "interpreter"
    assert type(error).__name__ in notes[-1]


def test_another_shape_that_fails_is_interpreted_too(
    lenient: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    f = whet.compile(model, {"x": (4, 8)}, note=notes.append)
    assert f.engine == "native"

    def fail(*args: object) -> None:
        raise KeyError("x7")

    with monkeypatch.context() as patch:
        patch.setattr(plan_module, "plan_segment", fail)
        got = f(X)
    assert "whet failed to compile the model" in notes[-1]
    np.testing.assert_allclose(got, expected(model), rtol=1e-5)


def test_artifacts_are_loaded_all_the_same(
    lenient: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whet.compile(model, {"x": (2, 8)}).save(tmp_path / "m.whet")
    wanted = expected(model)

    def fail(*args: object) -> None:
        raise KeyError("x7")

    monkeypatch.setattr("whet.build.native.load_refusals", lambda *args: None)
    monkeypatch.setattr(plan_module, "plan_segment", fail)
    with pytest.warns(WhetWarning, match="whet failed to compile the model"):
        f = whet.load(tmp_path / "m.whet")
    np.testing.assert_allclose(f(X), wanted, rtol=1e-6)


def test_a_pass_that_fails_is_left_out(
    lenient: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = expected(model)

    def fail(*args: object, **options: object) -> None:
        raise IndexError("no such node")

    monkeypatch.setattr(compiler, "optimize", fail)
    with pytest.warns(WhetWarning, match="whet failed to simplify the model, which runs as it is"):
        f = whet.compile(model, {"x": (2, 8)})
    assert f.engine == "native"
    np.testing.assert_allclose(f(X), wanted, rtol=1e-5)
    assert "no such node" in read_report(lenient)["traceback"][-1]


def test_a_search_that_fails_leaves_native_code(
    lenient: Path, records: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise IndexError("no candidate")

    monkeypatch.setattr("whet.joint.tuning.tune_graphs", fail)
    with pytest.warns(WhetWarning, match="whet failed to search for faster kernels, and uses thos"):
        f = whet.compile(model, {"x": (2, 8)}, budget=1)
    assert f.engine == "native"
    assert "no candidate" in read_report(lenient)["traceback"][-1]


def test_a_model_that_cannot_be_read_for_no_known_reason(
    lenient: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise IndexError("no such input")

    monkeypatch.setattr(importer, "check_structure", fail)
    with pytest.raises(InternalError, match="WH1007 whet failed while the model was read") as e:
        whet.compile(model, {"x": (2, 8)})
    assert "IndexError: no such input" in str(e.value)
    assert "no such input" in read_report(lenient)["traceback"][-1]
    assert e.value.exit_code == 70


def test_without_a_cache_there_is_no_report_but_a_warning(
    configured: Configured, lenient: Path, broken: None, model: Path
) -> None:
    configured(CACHE_ENABLED=0)
    with pytest.warns(WhetWarning, match="no report could be written: set WHET_STRICT=1"):
        f = whet.compile(model, {"x": (2, 8)})
    assert f.engine == "interpreter"
    assert not lenient.exists()


def test_notes_of_ordinary_things_are_no_warnings(
    lenient: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="whet"):
        whet.compile(model)
    assert "dimension 'N' of input 'x' is not given" in caplog.text
