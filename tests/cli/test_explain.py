"""whet explain: rules, proofs and places of the rewrites of a model, in words, JSON and SVG."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

Whet = Callable[..., Any]
Network = Callable[[str], Path]
SHORT = ("--budget", "3s", "--threads", 1, "--target", "x86-64-v3")


@pytest.fixture(autouse=True)
def searching(configured: Callable[..., None]) -> None:
    configured(REWRITE_SECONDS=2)


def test_the_slice_of_bert_is_explained(whet: Whet, network: Network) -> None:
    done = whet("explain", network("bert_base"), *SHORT, "--json", "-q")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    first = document["steps"][0]
    rules = {rule["rule"]: rule for rule in first["rules"]}
    assert rules["slice-matmul"]["statement"] == (
        "slice(matmul(x))  ->  matmul(slice(x))  along an axis that matmul carries"
    )
    assert rules["slice-softmax"]["proof"] == ["read off the tensor expression of softmax"]
    assert {rule["numeric"] for rule in rules.values()} == {first["numeric"]} == {"exact"}
    assert first["places"] == 1
    assert first["error"] < 1e-9
    assert document["after_seconds"] < document["before_seconds"] == first["before_seconds"]
    named = {n.output[0] for n in onnx.load(network("bert_base")).graph.node}
    named |= {n.name for n in onnx.load(network("bert_base")).graph.node}
    assert first["nodes"]
    assert {name.partition(" ")[0] for name in first["nodes"]} <= named


def test_words_and_picture(whet: Whet, network: Network, tmp_path: Path) -> None:
    picture = tmp_path / "bert.svg"
    done = whet("explain", network("bert_base"), *SHORT, "--svg", picture)
    assert done.returncode == 0, done.stderr
    assert "step 1: " in done.stdout
    assert "rule       slice-layer_norm, " in done.stdout
    assert "proof    read off the tensor expression of layer_norm" in done.stdout
    assert f"wrote {picture}" in done.stderr
    root = ElementTree.parse(picture).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"before", "after"} <= set(texts)
    assert any(text.startswith("slice starts=") for text in texts)


def test_measured_gains_have_intervals(whet: Whet, network: Network) -> None:
    done = whet("explain", network("bert_base"), "--measure", "--budget", "3s", "--json", "-q")
    assert done.returncode == 0, done.stderr
    for step in json.loads(done.stdout)["steps"]:
        low, high = step["measured_interval"]
        assert 0 < low <= step["measured_gain"] <= high


def test_a_model_that_stays_as_it_is(whet: Whet, model: Path, tmp_path: Path) -> None:
    done = whet("explain", model, *SHORT, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert "stays as it is" in done.stdout
    done = whet("explain", model, *SHORT, "--svg", tmp_path / "none.svg")
    assert done.returncode == 0
    assert "stays as it is" in done.stdout
    assert "there is nothing to draw" in done.stderr
    assert not (tmp_path / "none.svg").exists()


def test_steps_that_there_are_not(whet: Whet, network: Network, tmp_path: Path) -> None:
    arguments = (*SHORT, "-q", "--svg", tmp_path / "none.svg", "--step", 99)
    done = whet("explain", network("bert_base"), *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error WH3007 there is no step 99 to draw")
    assert not (tmp_path / "none.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "0"), "error WH3007 there is no time to search for rewrites"),
        (("--numerics", "odd"), "error WH1002 there is no numerics 'odd'"),
    ],
)
def test_wrong_arguments(whet: Whet, model: Path, arguments: tuple[str, ...], message: str) -> None:
    done = whet("explain", model, *arguments, "-q")
    assert done.returncode == 2
    assert done.stderr.startswith(message)


def test_artifacts_are_refused(whet: Whet, model: Path, tmp_path: Path) -> None:
    stored = tmp_path / "m.whet"
    assert whet("compile", model, "-o", stored, "-q").returncode == 0
    done = whet("explain", stored)
    assert done.returncode == 2
    assert "is an artifact, whose graph was rewritten" in done.stderr


def test_shapes_that_depend_on_data_are_noted(whet: Whet, tmp_path: Path) -> None:
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x) => (int64[1, N] y) { z = Relu(x)  y0 = NonZero(z)  y = Abs(y0) }
    """)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    done = whet("explain", path, *SHORT)
    assert done.returncode == 0, done.stderr
    assert "shapes depend on data" in done.stderr
