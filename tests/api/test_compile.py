"""The Python call: what it takes, what it gives, and what it says when it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import whet
from whet.core.dtypes import f32
from whet.core.errors import ModelError, UsageError
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.ops.base import make_op

rng = np.random.default_rng(0)
X = rng.standard_normal((2, 4)).astype(np.float32)
W = rng.standard_normal((4, 3)).astype(np.float32)
SHAPES = {"x": (2, 4)}


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


@pytest.mark.parametrize("form", ["path", "text path", "bytes", "proto"])
def test_model_may_be_path_bytes_or_proto(
    form: str, linear: onnx.ModelProto, linear_path: Path, notes: list[str]
) -> None:
    model: Any = {
        "path": linear_path,
        "text path": str(linear_path),
        "bytes": linear.SerializeToString(),
        "proto": linear,
    }[form]
    y, z = whet.compile(model, SHAPES, note=notes.append)(X, W)
    np.testing.assert_allclose(y, X @ W, rtol=1e-6)
    assert np.array_equal(z, np.maximum(y, 0))


def test_model_may_be_a_graph(notes: list[str]) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 4), f32))
    graph = whet.Graph((x,), (builder.one(make_op("relu", {}), x),), ("y",))
    f = whet.compile(graph, note=notes.append)
    assert np.array_equal(f(X), np.maximum(X, 0))
    assert f.inputs[0].name == "x"
    with pytest.raises(UsageError, match=r"f32\[2, 4\], got f32\[1, 4\]"):
        f(X[:1])
    with pytest.raises(UsageError, match="does not fit the graph"):
        whet.compile(graph, {"x": (3, 4)})


def test_arrays_by_position_by_name_and_mixed(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    expected = f(X, W)
    for got in (f(x=X, w=W), f(w=W, x=X), f(X, w=W)):
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    assert list(f.results(X, W)) == ["y", "z"]


def test_examples_fix_open_dimensions(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, {"x": X}, note=notes.append)
    assert [str(s) for s in f.inputs] == ["x: f32[2, 4]", "w: f32[4, 3]"]
    assert [str(s) for s in f.outputs] == ["y: f32[2, 3]", "z: f32[2, 3]"]
    assert not any("set to 1" in note for note in notes)


def test_engine_is_told(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    assert f.engine == "native"
    assert "engine: native" in repr(f)
    assert not notes


def test_out_receives_the_results(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    out = (np.empty((2, 3), np.float32), np.empty((2, 3), np.float32))
    got = f(X, W, out=out)
    assert got[0] is out[0]
    assert got[1] is out[1]
    np.testing.assert_allclose(out[0], X @ W, rtol=1e-6)
    for bad in (out[0], (out[0], np.empty((2, 3)))):
        with pytest.raises(UsageError, match="'out' must be"):
            f(X, W, out=bad)


def test_results_belong_to_the_caller(notes: list[str]) -> None:
    f = whet.compile(
        model_of("""g (float[3] x) => (float[3] y, float[3] k)
                    <float[3] c = {1, 2, 3}> { y = Identity(x)  k = Identity(c) }"""),
        note=notes.append,
    )
    x = np.ones(3, np.float32)
    y, k = f(x)
    y[:], k[:] = 9, 9
    assert x.tolist() == [1, 1, 1]
    assert f(x)[1].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("args", "names", "message"),
    [
        ((X,), {}, "no array for 'w'"),
        ((X, W, W), {}, "takes 2 inputs, got 3"),
        ((X,), {"v": W}, "no input 'v'"),
        ((X, W), {"x": X}, "'x' given twice"),
        ((X.astype(np.float64), W), {}, r"'x' is f32\[2, 4\], got f64\[2, 4\]"),
        (([[1.0]], W), {}, "'x' is a tensor, got list"),
        ((3.0, W), {}, "'x' is a float, not an array"),
        ((X[:, :3], W), {}, r"'x' is f32\[2, 4\], got f32\[2, 3\]"),
    ],
)
def test_wrong_calls_say_what_is_wrong(
    args: Any, names: Any, message: str, linear: onnx.ModelProto, notes: list[str]
) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    with pytest.raises(UsageError, match=message) as caught:
        f(*args, **names)
    assert caught.value.code == "WH3003"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threads": 0}, "0 threads"),
        ({"target": "tpu"}, "no target is named 'tpu'"),
        ({"numerics": "fuzzy"}, "no numerics 'fuzzy'"),
        ({"budget": "soon"}, "'soon' is not a time budget"),
        ({"budget": -1}, "makes no sense"),
        ({"budget": float("nan")}, "makes no sense"),
        ({"inputs": {"q": (1,)}}, "no input 'q'"),
    ],
)
def test_wrong_options_say_what_is_wrong(
    arguments: Any, message: str, linear: onnx.ModelProto
) -> None:
    with pytest.raises(UsageError, match=message):
        whet.compile(linear, **arguments)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10m", 600), ("1.5h", 5400), ("2", 2), (3, 3), (0.5, 0.5)]
)
def test_budgets(text: Any, seconds: float) -> None:
    from whet.api.budget import parse_budget

    assert parse_budget(text) == seconds


# --------------------------------------------------------------------- other shapes and values
def test_another_shape_compiles_once_with_a_message(
    linear: onnx.ModelProto, notes: list[str]
) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    notes.clear()
    wide = rng.standard_normal((5, 4)).astype(np.float32)
    for _ in range(2):
        np.testing.assert_allclose(f(wide, W)[0], wide @ W, rtol=1e-5)
        np.testing.assert_allclose(f(X, W)[0], X @ W, rtol=1e-5)
    assert notes == ["input 'x' is f32[2, 4], got f32[5, 4]: compiling the model again"]


def test_a_file_that_changed_is_not_compiled_again(linear_path: Path, notes: list[str]) -> None:
    f = whet.compile(linear_path, SHAPES, note=notes.append)
    linear_path.write_bytes(linear_path.read_bytes() + b"\0\0")
    assert f(X, W)
    with pytest.raises(UsageError, match="got f32") as caught:
        f(X[:1], W)
    assert "has changed" in str(caught.value)


RESHAPE = """g (float[2, 6] x, int64[2] s) => (float[A, B] y) { y = Reshape(x, s) }"""


def test_inputs_that_determine_shapes_are_guarded(notes: list[str]) -> None:
    with pytest.raises(ModelError, match="depends on the value of 's'"):
        whet.compile(model_of(RESHAPE), note=notes.append)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    f = whet.compile(model_of(RESHAPE), {"s": np.array([3, 4])}, note=notes.append)
    notes.clear()
    assert f(x, np.array([3, 4])).shape == (3, 4)
    assert not notes
    assert f(x, np.array([4, 3])).shape == (4, 3)
    assert len(notes) == 1
    assert "was [3, 4] and is [4, 3]" in notes[0]
    f(x, np.array([4, 3]))
    assert len(notes) == 1


def test_a_stored_model_keeps_its_guards(tmp_path: Path, notes: list[str]) -> None:
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    f = whet.compile(model_of(RESHAPE), {"s": np.array([3, 4])}, note=notes.append)
    f.save(tmp_path / "m.whet")
    g = whet.load(tmp_path / "m.whet")
    assert np.array_equal(g(x, np.array([3, 4])), x.reshape(3, 4))
    with pytest.raises(UsageError, match=r"was \[3, 4\] and is \[4, 3\]"):
        g(x, np.array([4, 3]))


def test_shapes_that_depend_on_data(tmp_path: Path, notes: list[str]) -> None:
    f = whet.compile(
        model_of("""g (float[4] x) => (float[1, N] y)
                    { i = NonZero(x)  c = Cast<to = 1>(i)  y = Neg(c) }"""),
        note=notes.append,
    )
    assert f(np.array([0, 1, 0, 1], np.float32)).tolist() == [[-1, -3]]
    assert f(np.array([0, 0, 5, 0], np.float32)).tolist() == [[-2]]
    assert f(np.array([0, 2, 0, 1], np.float32)).tolist() == [[-1, -3]]


def test_sequences_go_in_and_out(notes: list[str]) -> None:
    model = model_of("""g (seq(float[2]) s) => (seq(float[2]) t, float[K] c)
                        { t = Identity(s)  c = ConcatFromSequence<axis = 0>(s) }""")
    items = [np.ones(2, np.float32), np.zeros(2, np.float32)]
    f = whet.compile(model, {"s": items}, note=notes.append)
    t, c = f(items)
    assert [a.tolist() for a in t] == [[1, 1], [0, 0]]
    assert c.tolist() == [1, 1, 0, 0]
    assert f([*items, items[0]])[1].tolist() == [1, 1, 0, 0, 1, 1]
    assert "has 2 items, got 3" in notes[-1]


# ------------------------------------------------------------------------------ other libraries
class Foreign:
    """An array of another library, as DLPack sees it."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def test_dlpack_arrays_go_in(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    expected = f(X, W)[0]
    assert np.array_equal(f(Foreign(X), Foreign(W))[0], expected)
    assert np.array_equal(np.from_dlpack(f(X, W)[0]), expected)
    assert np.array_equal(f(Foreign(X[:1]), W)[0], expected[:1])
    assert whet.compile(linear, {"x": Foreign(X)}, note=notes.append).inputs[0].shape == (2, 4)
    with pytest.raises(UsageError, match="on a device"):
        f(Foreign(X, device=2), W)


def test_arrays_of_other_byte_order_and_layout(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    expected = f(X, W)[0]
    swapped = X.astype(X.dtype.newbyteorder())
    assert np.array_equal(f(swapped, np.asfortranarray(W))[0], expected)
