"""whet superopt: rewritten models are valid ONNX that means the same to ONNX Runtime."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from whet.cli import superopt
from whet.cli.peers.turns import Ratio

Whet = Callable[..., Any]
Network = Callable[[str], Path]
FASTER, UNSURE = Ratio(1.5, 1.4, 1.6), Ratio(1.5, 0.9, 1.9)


def results(path: Path, seed: int) -> list[np.ndarray[Any, Any]]:
    """The outputs of ONNX Runtime for random inputs."""
    session = onnxruntime.InferenceSession(path)
    rng = np.random.default_rng(seed)
    feed = {
        i.name: rng.integers(0, 900, i.shape)
        if "int" in i.type
        else rng.standard_normal(i.shape, np.float32)
        for i in session.get_inputs()
    }
    return list(session.run(None, feed))


def assert_same_model(before: Path, after: Path) -> None:
    """Valid, with the same names, types and results."""
    made, old = onnx.load(after), onnx.load(before)
    onnx.checker.check_model(made, full_check=True)
    for new, given in zip((made.graph.input, made.graph.output),
                          (old.graph.input, old.graph.output)):  # fmt: skip
        assert [v.name for v in new] == [v.name for v in given]
        assert [v.type for v in new] == [v.type for v in given]
    for seed in (1, 2):
        for a, b in zip(results(before, seed), results(after, seed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * max(1e-3, np.abs(a).max()))


@pytest.mark.parametrize("name", ["bert_base", "resnext50", "vit_tiny", "mobilenet_v2"])
def test_by_prices_of_whet(whet: Whet, network: Network, tmp_path: Path, name: str) -> None:
    better = tmp_path / "better.onnx"
    done = whet("superopt", network(name), "-o", better, "--cost", "whet", "--budget", "3s",
                "--threads", 1, "--json", "-q")  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["changed"] == bool(document["steps"]) == (document["opset"] is not None)
    if name == "bert_base":
        assert "slice-matmul" in document["steps"][0]
        assert onnx.load(better).opset_import[0].version == document["opset"]
    assert_same_model(network(name), better)


@pytest.mark.parametrize("name", ["nasrnn", "squeezenet"])
def test_by_times_of_onnxruntime(whet: Whet, network: Network, tmp_path: Path, name: str) -> None:
    """Whatever was faster today."""
    better = tmp_path / "better.onnx"
    done = whet("superopt", network(name), "-o", better, "--budget", "3s", "--threads", 1,
                "--seconds", 0.2, "--json", "-q")  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    interval = document["measured_interval"]
    assert document["changed"] == (interval is not None and interval[0] > 1)
    assert_same_model(network(name), better)


@pytest.mark.parametrize("measured", [FASTER, UNSURE, None])
def test_only_what_is_surely_faster_is_taken(
    whet: Whet,
    network: Network,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measured: Ratio | None,
) -> None:
    model, better = network("bert_base"), tmp_path / "better.onnx"
    monkeypatch.setattr(superopt, "by_onnxruntime", superopt.by_whet)
    monkeypatch.setattr(superopt, "compare_models", lambda *arguments: measured)
    done = whet("superopt", model, "-o", better, "--budget", "3s", "--threads", 1, "-q")
    assert done.returncode == 0, done.stderr
    if measured is FASTER:
        assert "rewritten, opset " in done.stdout
        assert "1.50x measured in onnxruntime (95 %: 1.40 to 1.60)" in done.stdout
        assert_same_model(model, better)
    else:
        assert "the model as it was, nothing faster was found" in done.stdout
        assert better.read_bytes() == model.read_bytes()


def test_an_interrupted_search_keeps_the_best(
    whet: Whet, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whet.joint import timed_search

    def interrupted(self: timed_search.TimedSearch) -> None:
        self.taken.append(timed_search.TimedStep((), 1, 0.5))
        raise KeyboardInterrupt

    monkeypatch.setattr(timed_search.TimedSearch, "run", interrupted)
    monkeypatch.setattr(superopt, "compare_models", lambda *arguments: FASTER)
    better = tmp_path / "better.onnx"
    done = whet("superopt", network("nasrnn"), "-o", better, "--threads", 1, "--json")
    assert done.returncode == 0, done.stderr
    assert "interrupted, 1 steps kept" in done.stderr
    document = json.loads(done.stdout)
    assert document["interrupted"]
    assert document["changed"]
    assert_same_model(network("nasrnn"), better)


def test_models_that_differ_are_not_timed(
    network: Network, model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from whet.cli.console import Reporter

    x = np.ones((1, 8), np.float32)
    other = onnx.load(model)
    weights = onnx.numpy_helper.to_array(other.graph.initializer[0])
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(-weights, "w"))
    data = other.SerializeToString()
    assert superopt.compare_models(str(model), data, {"x": x}, 1, 0.1, Reporter()) is None
    assert "results of the rewritten model differ by" in capfd.readouterr().err
    same = superopt.compare_models(
        str(model), model.read_bytes(), {"x": x}, 1, 0.1, Reporter(quiet=True)
    )
    assert same is not None
    assert same.low <= same.value <= same.high


def test_external_data_comes_along(model: Path, tmp_path: Path) -> None:
    proto = onnx.load(model)
    apart = tmp_path / "apart.onnx"
    onnx.save(proto, apart, save_as_external_data=True, size_threshold=0, location="weights")
    assert superopt.original_bytes(str(model)) == model.read_bytes()
    (tmp_path / "alone").mkdir()
    alone = tmp_path / "alone" / "m.onnx"
    alone.write_bytes(superopt.original_bytes(str(apart)))
    got, wanted = (onnxruntime.InferenceSession(p).run(None, {"x": np.ones((1, 8), np.float32)})
                   for p in (alone, model))  # fmt: skip
    assert np.array_equal(got[0], wanted[0])


def test_onnxruntime_is_optional(
    whet: Whet, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = whet("superopt", model, "-o", tmp_path / "b.onnx")
    assert done.returncode == 1
    assert done.stderr.startswith("error WH3005 onnxruntime is not installed")
    assert "hint: pip install onnxruntime" in done.stderr
    assert whet("superopt", model, "-o", tmp_path / "b.onnx", "--cost", "whet", "--budget", "1s",
                "-q").returncode == 0  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cost", "tvm"), "error WH3007 no cost is named 'tvm'"),
        (("--budget", "0"), "error WH3007 there is no time to search"),
        (("--budget", "soon"), "error WH1002 'soon' is not a time budget"),
    ],
)
def test_wrong_arguments(
    whet: Whet, model: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = whet("superopt", model, "-o", tmp_path / "b.onnx", *arguments, "-q")
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert not (tmp_path / "b.onnx").exists()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("(float[4] x) => (int64[1, N] y) { y = NonZero(x) }", "shapes depend on data"),
        (
            "(float[4] x, int64[1] s) => (float[N] y) { y = Expand(x, s) }",
            "shapes depend on the value of input 's'",
        ),
        (
            "(float[4] x) => (seq(float[4]) y) { y = SequenceConstruct(x) }",
            "'y' is a sequence or may be missing",
        ),
    ],
)
def test_models_that_are_no_plain_graph(
    whet: Whet, tmp_path: Path, body: str, problem: str
) -> None:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {body}')
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    given = ("-i", "s:=[4]") if "int64[1] s" in body else ()
    done = whet("superopt", path, "-o", tmp_path / "b.onnx", "-q", *given)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error WH2002 the model cannot be written as one ONNX graph")
    assert problem in done.stderr
