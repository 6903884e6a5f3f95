"""Models built for a target by name: run where that is possible, stored everywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import whet
from tests.targets import FOREIGN, LEVELS
from whet.api.engines import default_engine
from whet.api.native import Native
from whet.core.cpu import HERE
from whet.core.dtypes import bf16, f32
from whet.core.errors import ArtifactError, UsageError
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ops.activation import Relu
from whet.ops.casting import Cast
from whet.ops.matmul import MatMul
from whet.runtime.artifact import read_artifact, write_artifact

Configured = Callable[..., None]


def product() -> tuple[Graph, list[Array]]:
    """relu(x @ w), rounded to half precision and back."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", TensorType((9, 33), f32))
    y = b(Relu(), b(MatMul(), x, b.constant(rng.normal(size=(33, 20)).astype(np.float32))))
    y = b(Cast(f32), b(Cast(bf16), y))
    return Graph((x,), (y,), ("y",)), [rng.normal(size=(9, 33)).astype(np.float32)]


@pytest.mark.parametrize("name", [HERE, *LEVELS])
def test_levels_of_this_machine_run_here(name: str, tmp_path: Path) -> None:
    graph, arrays = product()
    (expected,) = interpret(graph, arrays)
    compiled = whet.compile(graph, target=name)
    assert compiled.target == name
    np.testing.assert_allclose(compiled(*arrays), expected, rtol=1e-2)
    compiled.save(tmp_path / "m.whet")
    loaded = whet.load(tmp_path / "m.whet", target=name)
    assert loaded(*arrays).tobytes() == compiled(*arrays).tobytes()


def test_what_is_built_for_another_processor_is_stored_and_not_called(
    tmp_path: Path, configured: Configured
) -> None:
    configured(TARGET=None)
    graph, arrays = product()
    compiled = whet.compile(graph, target=FOREIGN)
    assert compiled.engine == "native"
    assert "kernels" in "\n".join(compiled.describe())
    with pytest.raises(UsageError, match=f"WH1305 code for {FOREIGN} cannot run on this machine"):
        compiled(*arrays)
    with pytest.raises(UsageError, match="WH1305"):
        compiled.results(x=arrays[0])
    compiled.save(tmp_path / "m.whet")
    assert read_artifact(tmp_path / "m.whet").target == FOREIGN
    with pytest.raises(UsageError, match=f"WH1305 code for {FOREIGN}.*\n.*target cpu"):
        whet.load(tmp_path / "m.whet")
    here = whet.load(tmp_path / "m.whet", target="cpu")
    assert here.target == "cpu"
    np.testing.assert_allclose(here(*arrays), interpret(graph, arrays)[0], rtol=1e-2)


def test_what_cannot_run_here_cannot_be_tuned() -> None:
    with pytest.raises(UsageError, match="WH1305"):
        whet.compile(product()[0], target=FOREIGN, budget=1)
    with pytest.raises(UsageError, match="WH1305"):
        whet.tune_model(product()[0], target=FOREIGN, trials=1)


def test_an_artifact_keeps_its_target(tmp_path: Path, configured: Configured) -> None:
    configured(TARGET=None)
    whet.compile(product()[0], target=LEVELS[0]).save(tmp_path / "m.whet")
    assert whet.load(tmp_path / "m.whet").target == LEVELS[0]
    assert whet.load(tmp_path / "m.whet", target="cpu").target == "cpu"
    configured(TARGET=LEVELS[-1])
    assert whet.load(tmp_path / "m.whet").target == LEVELS[-1]


def test_the_setting_names_the_target(configured: Configured) -> None:
    configured(TARGET=None)
    graph, _ = product()
    assert whet.compile(graph).target == "cpu"
    configured(TARGET=LEVELS[0])
    assert whet.compile(graph).target == LEVELS[0]
    assert whet.compile(graph, target="cpu").target == "cpu"
    configured(TARGET="z80")
    with pytest.raises(UsageError, match="WH1002 no target is named 'z80'"):
        whet.compile(graph)


def test_engines_of_targets_are_told_apart(configured: Configured) -> None:
    configured(TARGET=None)
    engines = [default_engine(target=name) for name in ("cpu", LEVELS[0], "cpu")]
    assert all(isinstance(e, Native) for e in engines)
    assert engines[0] is engines[2]
    assert engines[0].target.key != engines[1].target.key  # type: ignore[attr-defined]


def test_a_target_of_another_version_is_refused(tmp_path: Path, configured: Configured) -> None:
    configured(TARGET=None)
    path = tmp_path / "m.whet"
    whet.compile(product()[0]).save(path)
    write_artifact(path, dataclasses.replace(read_artifact(path), target="x86-64-v9"))
    with pytest.raises(ArtifactError, match=r"WH3002 the artifact was made for .* 'x86-64-v9'"):
        whet.load(path)
    assert whet.load(path, target="cpu").target == "cpu"
