"""Stored models: what is written is what is read, and others can read it too."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors

import whet
from whet.core import dtypes
from whet.core.dtypes import f32
from whet.core.errors import ArtifactError, UnsupportedError, UsageError
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import REGISTRY, NoAlgebra, Op, operator
from whet.runtime.artifact import Artifact, read_artifact, write_artifact
from whet.runtime.ports import Port
from whet.runtime.signature import Signature, TensorSpec


def artifact_of(constants: dict[str, Any]) -> Artifact:
    """An artifact with these constants, a guard, and ports of every kind."""
    signature = Signature(
        arguments=(Port("x", 0), Port("s", (1, (2,))), Port("none", None)),
        inputs=tuple(TensorSpec(n, dtypes.f32, (2,)) for n in ("x", "s[0]", "s[1][0]")),
        results=(Port("y", 0),),
        outputs=(TensorSpec("y", dtypes.i64, (None, 3)),),
        guards={"x": np.array([1, 2], np.float32)},
    )
    return Artifact(signature, "text é", constants, "cpu", "real", "0.1.0")


def all_types() -> dict[str, Any]:
    arrays: dict[str, Any] = {
        d.name: (np.arange(6) % 2).astype(d.numpy).reshape(2, 3) for d in dtypes.ALL
    }
    return arrays | {
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(2.5),
        "strided": np.arange(12, dtype=np.int32).reshape(3, 4)[:, ::2],
        "nan": np.array([np.nan, -0.0, np.inf], np.float32),
    }


def test_everything_comes_back(tmp_path: Path) -> None:
    written = artifact_of(all_types())
    write_artifact(tmp_path / "a.whet", written)
    read = read_artifact(tmp_path / "a.whet")
    assert read.graph_text == written.graph_text
    assert (read.target, read.numerics, read.whet_version) == ("cpu", "real", "0.1.0")
    for name in ("arguments", "inputs", "results", "outputs"):
        assert getattr(read.signature, name) == getattr(written.signature, name)
    assert read.signature.guards["x"].tolist() == [1, 2]
    assert set(read.constants) == set(written.constants)
    for name, array in written.constants.items():
        found = read.constants[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape), name
        assert found.tobytes() == array.tobytes(), name
        assert not found.flags.writeable
        assert found.flags.aligned


def test_other_tools_can_read_it(tmp_path: Path) -> None:
    write_artifact(tmp_path / "a.whet", artifact_of(all_types()))
    with zipfile.ZipFile(tmp_path / "a.whet") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", "graph.txt", "weights.safetensors"]
        assert json.loads(archive.read("manifest.json"))["schema"] == 2
        tensors = dict(safetensors.deserialize(archive.read("weights.safetensors")))
    assert tensors["constant:f32"]["dtype"] == "F32"
    assert tensors["constant:bf16"]["dtype"] == "BF16"
    assert tensors["constant:i4"]["dtype"] == "U8"  # the format has no name for it
    for name, array in all_types().items():
        found = tensors[f"constant:{name}"]
        assert found["shape"] == list(array.shape), name
        assert bytes(found["data"]) == array.tobytes(), name


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_artifact(tmp_path / name, artifact_of(all_types()))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_model_is_the_same_after_loading(linear: onnx.ModelProto, tmp_path: Path) -> None:
    f = whet.compile(linear, {"x": (2, 4)}, note=lambda message: None)
    f.save(tmp_path / "m.whet")
    g = whet.load(tmp_path / "m.whet")
    x, w = np.ones((2, 4), np.float32), np.eye(4, 3, dtype=np.float32)
    assert np.array_equal(f(x, w)[0], g(x, w)[0])
    assert (g.inputs, g.outputs, repr(g)) == (f.inputs, f.outputs, repr(f))
    assert str(g.graph) == str(f.graph)
    g.save(tmp_path / "again.whet")
    assert (tmp_path / "again.whet").read_bytes() == (tmp_path / "m.whet").read_bytes()
    with pytest.raises(UsageError, match=r"m\.whet' is an artifact, not a model"):
        whet.compile(tmp_path / "m.whet")
    with pytest.raises(UsageError, match="an artifact holds one set of types"):
        g(x[:1], w)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, linear: onnx.ModelProto) -> None:
    target = tmp_path / "folder"
    (target / "inside").mkdir(parents=True)
    f = whet.compile(linear, note=lambda message: None)
    for path in (target, tmp_path / "missing" / "m.whet"):
        with pytest.raises(UsageError, match="cannot write") as caught:
            f.save(path)
        assert caught.value.code == "WH3006"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder"]


def test_another_schema_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.runtime.artifact.SCHEMA", 99)
    write_artifact(tmp_path / "a.whet", artifact_of({}))
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match="schema 99, this version of whet reads") as caught:
        read_artifact(tmp_path / "a.whet")
    assert caught.value.code == "WH3002"


def test_an_operator_that_is_not_defined_here_is_no_damage(tmp_path: Path) -> None:
    """Somebody's own operator, and nobody has imported the module that defines it."""
    path = tmp_path / "m.whet"

    @operator("swell", "x")
    class Swell(Op):
        """Twice as much."""

        def infer(self, x: TensorType) -> TensorType:
            return x

        def reference(self, x: Array) -> Array:
            return x + x

        def compute(self, x: Tensor) -> Compute:
            return compute(x.shape, lambda *i: x[i] + x[i], "swell")

        axioms = NoAlgebra("an example")

    try:
        b = GraphBuilder()
        x = b.input("x", TensorType((3,), f32))
        whet.compile(Graph((x,), (b.one(Swell(), x),), ("y",))).save(path)
        assert whet.load(path)(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    finally:
        del REGISTRY["swell"]
    with pytest.raises(UnsupportedError, match="WH1106 the artifact has an operator that is not d"):
        whet.load(path)
    with pytest.raises(UnsupportedError, match="unknown operator 'swell'") as e:
        whet.load(path)
    assert "import the module that defines it" in str(e.value)
