"""The Python call: what it takes, what it gives, and what it says when it cannot."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle  # noqa: TID251 - to see that it is refused
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import whet
from whet.api import programs
from whet.core.dtypes import bf16, f32
from whet.core.errors import OperatorError, UsageError
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.ops.base import make_op
from whet.runtime import dlpack
from whet.runtime.arrays import as_numpy

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


def test_out_that_results_cannot_be_written_to(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, {"x": (2, 4)}, note=notes.append)
    o = np.empty((2, 3), np.float32)
    both = np.empty((3, 3), np.float32)
    frozen = np.empty((2, 3), np.float32)
    frozen.flags.writeable = False
    repeated = np.lib.stride_tricks.as_strided(np.empty(3, np.float32), (2, 3), (0, 4))
    for bad, message in (
        (o, "'out' has 1 arrays and the model 2 outputs"),
        ((o, np.empty((2, 3))), r"'out' of 'z' must be f32\[2, 3\], got f64\[2, 3\]"),
        ((o, [1]), "'out' of 'z' must be a NumPy array, got list"),
        ((o, frozen), "'out' of 'z' is read-only"),
        ((o, o), "arrays in 'out' share memory"),
        ((both[:2], both[1:]), "arrays in 'out' share memory"),
        ((o, o[:, ::-1]), "arrays in 'out' share memory"),
        ((o, repeated), "arrays in 'out' share memory"),
        (5, "'out' must be an array or a sequence of arrays, got int"),
        ("yz", "'out' must be an array or a sequence of arrays, got str"),
    ):
        for call in (lambda: f(X, W, out=bad), lambda: f(x=X, w=W, out=bad)):  # noqa: B023
            with pytest.raises(UsageError, match=message):
                call()


def test_out_may_be_interleaved(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, {"x": (2, 4)}, note=notes.append)
    room = np.empty((2, 6), np.float32)
    out = [room[:, ::2], room[:, 1::2]]
    f(X, W, out=out)
    np.testing.assert_allclose(room[:, ::2], X @ W, rtol=1e-6)
    np.testing.assert_allclose(room[:, 1::2], np.maximum(X @ W, 0), rtol=1e-6)
    turned = [np.empty((3, 2), np.float32).T for _ in range(2)]
    f(X, W, out=turned)
    np.testing.assert_allclose(turned[0], X @ W, rtol=1e-6)


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


def test_an_empty_batch_runs_no_operator(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, {"x": (0, 4)}, note=notes.append)
    assert not any(line.startswith("not native") for line in f.describe())
    for got in (f(X[:0], W), whet.compile(linear, SHAPES, note=notes.append)(X[:0], W)):
        assert [(y.shape, y.dtype) for y in got] == [((0, 3), np.float32)] * 2
        assert all(y.flags.writeable for y in got)


def test_a_shape_that_cannot_be_is_not_announced(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    notes.clear()
    with pytest.raises(UsageError, match=r"input 'x' is f32\[2, 4\], got f32\[2, 5\]") as caught:
        f(np.zeros((2, 5), np.float32), W)
    assert "the given shape is [2, 5]" in str(caught.value)
    assert notes == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": (4, 256)}, "WH2007 'inputs' must be a dictionary, got tuple"),
        ({"inputs": X}, "WH2007 'inputs' must be a dictionary, got ndarray"),
        ({"inputs": "x=2x4"}, "WH2007 'inputs' must be a dictionary, got str"),
        ({"threads": "2"}, "WH1002 'threads' must be a whole number, got '2'"),
        ({"threads": 2.5}, "WH1002 'threads' must be a whole number, got 2.5"),
        ({"threads": True}, "WH1002 True threads are not between 1 and 1024"),
        ({"threads": 0}, "WH1002 0 threads are not between 1 and 1024"),
        ({"threads": 5000}, "WH1002 5000 threads are not between 1 and 1024"),
        ({"budget": None}, "WH1002 'budget' must be seconds or a text such as '10m', got None"),
        ({"budget": [1]}, "WH1002 'budget' must be seconds"),
        ({"budget": True}, "WH1002 'budget' must be seconds"),
        ({"note": 5}, "WH1002 'note' must be a function, got int"),
        ({"numerics": None}, "WH1002 there is no numerics 'None'"),
    ],
)
def test_arguments_of_other_types(
    linear: onnx.ModelProto, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        whet.compile(linear, **arguments)


def test_a_graph_takes_the_shapes_of_its_inputs(linear: onnx.ModelProto, notes: list[str]) -> None:
    graph = whet.compile(linear, SHAPES, note=notes.append).graph
    for wrong in (5, None, (2, 5)):
        with pytest.raises(UsageError, match=r"WH2007 input 'x' of shape .* does not fit the"):
            whet.compile(graph, {"x": wrong})
    assert whet.compile(graph, {"x": [2, 4]}, threads=np.int64(1)).engine == "native"


def test_files_are_given_by_their_path(linear_path: Path) -> None:
    f = whet.compile(linear_path, SHAPES)
    with linear_path.open("rb") as file:
        for wrong in (file, None, 3, b"abc"):
            with pytest.raises(UsageError, match="WH3001 the file to load must be given by its pa"):
                whet.load(wrong)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="WH3006 the file to write must be given by its "):
                f.save(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is not the name of a file"):
        whet.load("a\0b")


def test_copies_are_the_model_and_pickles_are_refused(linear_path: Path) -> None:
    f = whet.compile(linear_path, SHAPES)
    assert copy.copy(f) is f
    assert copy.deepcopy({"model": f})["model"] is f
    with pytest.raises(UsageError, match="WH3006 a compiled model cannot be pickled") as e:
        pickle.dumps(f)
    assert "whet.load(path)" in str(e.value)


def test_a_file_that_changed_is_not_compiled_again(linear_path: Path, notes: list[str]) -> None:
    f = whet.compile(linear_path, SHAPES, note=notes.append)
    linear_path.write_bytes(linear_path.read_bytes() + b"\0\0")
    assert f(X, W)
    with pytest.raises(UsageError, match="got f32") as caught:
        f(X[:1], W)
    assert "has changed" in str(caught.value)


RESHAPE = """g (float[2, 6] x, int64[2] s) => (float[A, B] y) { y = Reshape(x, s) }"""


def test_inputs_that_determine_shapes_are_guarded(notes: list[str]) -> None:
    with pytest.raises(UsageError, match="depends on the value of 's'"):
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


SCALE = """g (float[1, 1, 2, 2] x, float[4] s) => (float[A, B, C, D] y) { y = Resize(x, , s) }"""


def test_guards_hold_for_any_array_of_the_same_value(notes: list[str]) -> None:
    s = np.array([1, 1, 2, 2], np.float32)
    f = whet.compile(model_of(SCALE), {"s": s}, note=notes.append)
    x, out = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2), np.empty((1, 1, 4, 4), np.float32)
    expected = f(x, s)
    for given in (s.copy(), np.repeat(s, 3)[::3], s[::-1].copy()[::-1]):
        assert np.array_equal(f(x, given), expected)
    assert f(x, s, out=out) is out
    assert np.array_equal(out, expected)
    assert np.array_equal(f(x=x, s=s), expected)
    assert not notes


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


class Bfloats:
    """A tensor of bfloat16 as torch exports it: NumPy's reader refuses it."""

    def __init__(self, array: np.ndarray[Any, Any], strides: bool = True, code: int = 4) -> None:
        self.array = array
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        steps = (ctypes.c_int64 * array.ndim)(*(s // 2 for s in array.strides))
        self.held = shape, steps
        fields = dlpack.TENSOR.pack(
            array.ctypes.data - 6, 1, 0, array.ndim, code, 16, 1, ctypes.addressof(shape),
            ctypes.addressof(steps) if strides else 0, 6,
        )  # fmt: skip
        self.tensor = ctypes.create_string_buffer(fields, len(fields))
        self.released = 0
        # The tensor is the first part of what a capsule holds; the rest is nobody's here.
        self.destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.release)

    def release(self, capsule: int) -> None:
        self.released += 1

    def __dlpack__(self, **options: Any) -> Any:
        if options:
            raise BufferError("unsupported dtype")
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        destructor = ctypes.cast(self.destructor, ctypes.c_void_p)
        return new(ctypes.addressof(self.tensor), b"dltensor", destructor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_bfloat16_of_other_libraries_goes_in(notes: list[str]) -> None:
    f = whet.compile(
        model_of("g (bfloat16[2, 3] x) => (bfloat16[2, 3] y) { y = Identity(x) }"),
        note=notes.append,
    )
    plain = np.arange(6).reshape(2, 3).astype(bf16.numpy)
    turned = np.ascontiguousarray(plain.T).T
    for given in (Bfloats(plain), Bfloats(plain, strides=False), Bfloats(turned)):
        assert np.array_equal(f(given), plain)
        gc.collect()
        assert given.released
    array = as_numpy(kept := Bfloats(plain), "x")
    gc.collect()
    assert not kept.released  # as long as the array is there
    assert np.array_equal(array, plain)
    assert np.shares_memory(array, plain)
    assert as_numpy(Bfloats(plain[:0]), "x").shape == (0, 3)
    other = Bfloats(plain, code=5)
    with pytest.raises(UsageError, match="WH3003 input 'x' cannot be read through DLPack: unsupp"):
        f(other)


def test_another_element_type_says_how_to_convert(
    linear: onnx.ModelProto, notes: list[str]
) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    with pytest.raises(UsageError, match=r"input 'x' is f32\[2, 4\], got f64\[2, 4\]") as e:
        f(X.astype(np.float64), W)
    assert "hint: x.astype(np.float32), which may lose digits" in str(e.value)
    with pytest.raises(UsageError, match="got i8") as e:
        f(X.astype(np.int8), W)
    assert str(e.value).endswith("hint: x.astype(np.float32)")


def test_arrays_of_other_byte_order_and_layout(linear: onnx.ModelProto, notes: list[str]) -> None:
    f = whet.compile(linear, SHAPES, note=notes.append)
    expected = f(X, W)[0]
    swapped = X.astype(X.dtype.newbyteorder())
    assert np.array_equal(f(swapped, np.asfortranarray(W))[0], expected)


EMBEDDINGS = """
    embed (int64[N] words, int64[N] kinds) => (float[N, 4] y)
    { a = Gather(table, words)  k = Add(kinds, one)  b = Gather(extra, k)  y = Add(a, b) }
"""


@pytest.fixture
def embeddings() -> onnx.ModelProto:
    made = model_of(EMBEDDINGS)
    for n, name in enumerate(("first", "plus", "second", "sum")):
        made.graph.node[n].name = name
    arrays = {"table": (30, 4), "extra": (3, 4)}
    for name, shape in arrays.items():
        value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        made.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "one"))
    return made


@pytest.mark.parametrize("limit", [0, programs.EXPLAINED_FLOPS])
def test_an_index_outside_names_node_input_and_value(
    embeddings: onnx.ModelProto,
    notes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
) -> None:
    monkeypatch.setattr(programs, "EXPLAINED_FLOPS", limit)
    f = whet.compile(embeddings, {"words": (5,), "kinds": (5,)}, note=notes.append)
    f.save(tmp_path / "m.whet")
    words, kinds = np.arange(5), np.zeros(5, np.int64)
    right = f(words, kinds)
    for g in (f, whet.load(tmp_path / "m.whet")):
        with pytest.raises(OperatorError, match="WH1302") as first:
            g(np.where(words == 3, 30, words), kinds)
        with pytest.raises(OperatorError, match="WH1302") as second:
            g(words=words, kinds=kinds + 2)
        assert np.array_equal(g(words, kinds), right)
        if limit:
            assert "node 'first': gather: the index 30 is outside [-30, 30)" in str(first.value)
            assert "indices of gather is the input 'words'" in str(first.value)
            assert "node 'second': gather: the index 3 is outside [-3, 3)" in str(second.value)
            assert "indices of gather is computed by add ('plus')" in str(second.value)
        else:
            assert "an index that the model computes or is given is outside" in str(first.value)
