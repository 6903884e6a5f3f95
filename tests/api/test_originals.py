"""Weights as the model's file has them are not held by native programs, and come back."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import whet
from whet.core.errors import ArtifactError, ModelError
from whet.graph import graph as graphs

SIZE = 64


def silent(message: str) -> None:
    """Notes do not matter here."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx", seed=0)


def write_model(path: Path, seed: int, size: int = SIZE) -> Path:
    """y = relu(x @ w) @ w."""
    rng = np.random.default_rng(seed)
    w = onnx.numpy_helper.from_array(rng.standard_normal((size, size)).astype("f4"), "w")
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["a"]),
        onnx.helper.make_node("Relu", ["a"], ["b"]),
        onnx.helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    ports = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])
        for name in ("x", "y")
    ]
    graph = onnx.helper.make_graph(nodes, "model", ports[:1], ports[1:], [w])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture
def made_constants(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[graphs.Constant]]:
    """References to the large constants that graphs are made with from now on."""
    found: list[weakref.ref[graphs.Constant]] = []
    plain = graphs.Constant.__init__

    def noted(self: graphs.Constant, *args: object) -> None:
        plain(self, *args)  # type: ignore[arg-type]
        if self.array.size >= SIZE * SIZE:
            found.append(weakref.ref(self))

    monkeypatch.setattr(graphs.Constant, "__init__", noted)
    return found


def alive(constants: list[weakref.ref[graphs.Constant]]) -> int:
    gc.collect()
    return sum(c() is not None for c in constants)


def native(model: Path | bytes, rows: int = 2) -> whet.CompiledModel:
    f = whet.compile(model, {"x": (rows, SIZE)}, 1, note=silent)
    assert f.engine == "native"
    return f


@pytest.mark.parametrize("kind", ["path", "bytes", "artifact"])
def test_originals_are_released(
    kind: str,
    path: Path,
    made_constants: list[weakref.ref[graphs.Constant]],
    tmp_path: Path,
) -> None:
    f = native(path.read_bytes() if kind == "bytes" else path)
    if kind == "artifact":
        f.save(tmp_path / "a.whet")
        f = whet.load(tmp_path / "a.whet", 1)
    assert made_constants
    assert alive(made_constants) == 0
    x = np.ones((2, SIZE), np.float32)
    graph = f.graph
    assert f.graph is graph
    assert alive(made_constants) > 0
    (w,) = (c.array for c in graph.constants)
    np.testing.assert_allclose(f(x), np.maximum(x @ w, 0) @ w, rtol=1e-3, atol=1e-2)
    if kind != "artifact":
        f(np.ones((3, SIZE), np.float32))  # compiles again
    del graph, w
    assert alive(made_constants) == 0


def test_large_originals_are_released_at_once(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.onnx", 0, size=2100)  # 17.6 MB
    gc.disable()
    try:
        f = whet.compile(path, {"x": (1, 2100)}, 1, note=silent)
        nodes = [o for o in gc.get_objects() if isinstance(o, graphs.Node)]
    finally:
        gc.enable()
    if f.engine == "native":
        assert not [n for n in nodes if any(2100 in v.tensor_type.shape for v in n.inputs)]


def test_a_saved_model_is_that_which_runs(path: Path, tmp_path: Path) -> None:
    x = np.ones((2, SIZE), np.float32)
    example = x.copy()
    f = whet.compile(path, {"x": example}, 1, note=silent)
    example[:] = np.nan
    f.save(tmp_path / "a.whet")
    g = whet.load(tmp_path / "a.whet", 1)
    assert str(g.graph) == str(f.graph)
    assert g(x).tobytes() == f(x).tobytes()
    g.save(tmp_path / "a.whet")  # onto itself
    assert (tmp_path / "a.whet").read_bytes()


def test_a_changed_model_is_not_taken_for_the_compiled_one(path: Path, tmp_path: Path) -> None:
    f = native(path)
    f.save(tmp_path / "a.whet")
    g = whet.load(tmp_path / "a.whet", 1)
    write_model(path, seed=1)
    with pytest.raises(ModelError, match="has changed"):
        f.save(tmp_path / "b.whet")
    native(path).save(tmp_path / "a.whet")
    with pytest.raises(ArtifactError, match="has changed"):
        _ = g.graph


def test_a_proto_may_change_afterwards(path: Path, tmp_path: Path) -> None:
    proto = onnx.load(path)
    f = whet.compile(proto, {"x": (2, SIZE)}, 1, note=silent)
    expected = str(f.graph)
    proto.graph.node[1].op_type = "Tanh"
    assert str(f.graph) == expected
