"""precision=: what numbers of single precision are computed with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import whet
from whet.core.dtypes import f16, f32
from whet.core.errors import ArtifactError, UsageError
from whet.core.precision import PRECISIONS
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.ops.activation import Relu
from whet.ops.matmul import MatMul
from whet.runtime.artifact import read_artifact, write_artifact

GPU = "cuda-sm_90a"


def product() -> Graph:
    b = GraphBuilder()
    x = b.input("x", TensorType((32, 64), f32))
    w = b.constant(np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32))
    return Graph((x,), (b.one(Relu(), b.one(MatMul(), x, w)),), ("y",))


def test_a_processor_has_one_precision() -> None:
    with pytest.raises(UsageError, match="has no precision 'tf32'") as error:
        whet.compile(product(), target="cpu", precision="tf32")
    assert error.value.code == "WH1002"
    assert error.value.hint is not None
    assert "such as cuda" in error.value.hint
    assert whet.compile(product(), target="cpu", precision="fp32").precision == "fp32"


def test_unknown_precisions_are_refused() -> None:
    with pytest.raises(UsageError, match="there is no precision 'half'"):
        whet.compile(product(), precision="half")


def test_settings_say_the_precision(configured: Callable[..., None]) -> None:
    configured(PRECISION="bf16", TARGET="cpu")
    with pytest.raises(UsageError, match="has no precision 'bf16'"):
        whet.compile(product())
    assert whet.compile(product(), precision="fp32").precision == "fp32"


def test_an_artifact_says_its_precision(tmp_path: Path) -> None:
    compiled = whet.compile(product(), target="cpu")
    path = tmp_path / "m.whet"
    compiled.save(path)
    stored = read_artifact(path)
    assert stored.precision == "fp32"
    write_artifact(path, replace(stored, precision="tf32"))
    assert read_artifact(path).precision == "tf32"
    with pytest.raises(UsageError, match="has no precision 'tf32'"):
        whet.load(path, target="cpu")
    write_artifact(path, replace(stored, precision="fp8"))
    with pytest.raises(ArtifactError, match="the artifact's precision is of another version"):
        whet.load(path)


@pytest.mark.cuda
@pytest.mark.parametrize("name", PRECISIONS)
def test_models_are_built_and_stored_in_every_precision(name: str, tmp_path: Path) -> None:
    compiled = whet.compile(product(), target=GPU, precision=name)
    assert compiled.precision == name
    assert str(compiled.inputs[0].type_text) == "f32[32, 64]"
    said = f"precision {name}: {PRECISIONS[name].meaning}"
    assert (said in compiled.describe()) == (name != "fp32")
    kept = {c.type.dtype for c in compiled.graph.constants}
    assert kept == {PRECISIONS[name].storage or f32}
    compiled.save(tmp_path / "m.whet")
    assert read_artifact(tmp_path / "m.whet").precision == name
    with pytest.raises(UsageError, match="cannot run on this machine"):
        whet.load(tmp_path / "m.whet", target="cuda-sm_80")


@pytest.mark.cuda
def test_a_model_in_half_precision_is_stored_so(tmp_path: Path) -> None:
    whet.compile(product(), target=GPU, precision="fp16").save(tmp_path / "m.whet")
    (weights,) = read_artifact(tmp_path / "m.whet").constants.values()
    assert weights.dtype == f16.numpy
