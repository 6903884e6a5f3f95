"""ONNX export: valid models that mean the same to the importer and to ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as st
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_errors

from whet.core.dtypes import bf16, bool_, f4e2m1, f32, f64, i16, i32, i64
from whet.core.errors import GraphError
from whet.core.types import Array, TensorType
from whet.frontend.onnx import import_model
from whet.graph.build import GraphBuilder
from whet.graph.export import export_model
from whet.graph.export_operators import OPSET
from whet.graph.export_portable import OLD_OPSET, portable_model
from whet.graph.graph import Graph, Value, apply, make_constant, make_input
from whet.graph.interpret import interpret
from whet.graph.passes import optimize
from whet.ops import REGISTRY
from whet.ops.base import DynamicType, Sample
from whet.ops.scan import Scan

RUNTIME_TYPES = {f32, f64, i32, i64, bool_}
REFUSED = {
    "avg_pool": "no f64",
    "conv_transpose": "no output padding in three dimensions",
    "deform_conv": "two dimensions only",
    "det": "f32 only",
    "lp_pool": "no f64",
    "lrn": "four axes only",
    "one_hot": "not for all index types, nor scalars",
    "pad": "no reflection beyond the far end",
    "resize": "not all modes for all ranks",
    "reverse_sequence": "the first two axes only",
}
"""Operators that ONNX Runtime lacks in part: it may refuse them, but not differ."""
DIFFERENT = {
    "col2im": "wrong for dilated windows in three dimensions",
    "grid_sample": "cubic interpolation reads other elements at the border",
    "nonzero": "a scalar has one row",
    "reduce_mean": "the mean of nothing is 0",
}
"""Operators of which ONNX Runtime has another opinion in corner cases."""
Export = Callable[[Graph], onnx.ModelProto]
EXPORTS: list[Export] = [export_model, portable_model]
REFUSALS = (
    runtime_errors.NotImplemented, runtime_errors.InvalidArgument, runtime_errors.Fail,
)  # fmt: skip


def sample_graph(sample: Sample) -> Graph:
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(sample.types))
    outputs = apply(sample.op, *inputs)
    return Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))


def is_exportable(sample: Sample) -> bool:
    types = (*sample.types, *sample.op.infer_types(sample.types))
    return not any(t.dtype.name in ("f8e8m0", "f4e2m1", "i2", "u2") for t in types)


def run_onnxruntime(model: onnx.ModelProto, arrays: list[Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], arrays)))


def assert_close(got: Array, want: Array, tolerance: float = 1e-4) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_operator_is_exported(name: str, export: Export) -> None:
    """Valid for the checker, the same after importing, and the same in ONNX Runtime."""
    cls, rng = REGISTRY[name], np.random.default_rng(4)
    for sample in filter(is_exportable, (*cls.samples(), cls.sample(rng))):
        graph = sample_graph(sample)
        model = export(graph)
        onnx.checker.check_model(model)
        if not sample.op.deterministic:
            continue
        arrays = list(sample.arrays(rng))
        expected = interpret(graph, arrays)
        if not any(isinstance(v.type, DynamicType) for v in graph.outputs):
            imported = import_model(model).graph
            for got, want in zip(interpret(imported, arrays), expected, strict=True):
                assert_close(got, want, 0.02 if want.dtype.itemsize <= 2 else 1e-4)
        native = any(node.domain == "whet" for node in model.graph.node)
        types = {t.dtype for t in (*sample.types, *(v.type for v in graph.outputs))}
        if native or not types <= RUNTIME_TYPES or name in DIFFERENT:
            continue
        try:
            results = run_onnxruntime(model, arrays)
        except REFUSALS:
            assert name in REFUSED
            continue
        for got, want in zip(results, expected, strict=True):
            assert_close(got, want)


def test_few_operators_need_a_domain_of_their_own() -> None:
    needed = set()
    for name, cls in REGISTRY.items():
        for sample in filter(is_exportable, cls.samples()):
            nodes = export_model(sample_graph(sample)).graph.node
            needed |= {name for node in nodes if node.domain == "whet"}
    assert len(needed) <= 14, sorted(needed)


def test_names_types_and_constants_are_kept() -> None:
    b = GraphBuilder()
    b.current_name = "layer1"
    x = b.input("the input", TensorType((2, 3), f32))
    w = b.constant(np.arange(12, dtype=np.float32).reshape(3, 4))
    y = b.one(REGISTRY["matmul"](), x, w)
    graph = Graph((x,), (y, y, x, w), ("y", "again", "same", "weights"), b.names)
    model = export_model(graph)
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == ["the input"]
    assert [o.name for o in model.graph.output] == ["y", "again", "same", "weights"]
    assert [n.op_type for n in model.graph.node] == ["MatMul", "Identity", "Identity", "Identity"]
    assert model.graph.node[0].name.startswith("layer1/")
    assert import_model(model).graph.outputs == graph.outputs
    data = np.ones((2, 3), np.float32)
    for got, want in zip(run_onnxruntime(model, [data]), interpret(graph, [data]), strict=True):
        assert_close(got, want)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("celu", bf16), ("round", bf16), ("where", bool_), ("relu", i16), ("reduce_sum", i16)],
)
def test_types_that_onnx_lacks_are_carried_in_others(name: str, dtype: object) -> None:
    op = REGISTRY[name](axes=(0,)) if name == "reduce_sum" else REGISTRY[name]()
    types = [TensorType((4,), dtype)] * len(op.inputs)  # type: ignore[arg-type]
    if name == "where":
        types[0] = TensorType((4,), bool_)
    graph = sample_graph(Sample(op, tuple(types)))
    model = export_model(graph)
    onnx.checker.check_model(model, full_check=True)
    assert not any(n.domain == "whet" for n in model.graph.node)
    arrays = [np.array([3, -1, 0, 2]).astype(t.dtype.numpy) for t in types]
    for got, want in zip(
        interpret(import_model(model).graph, arrays), interpret(graph, arrays), strict=True
    ):
        assert_close(got, want, 0.02)


def test_scans_are_exported_as_scans() -> None:
    b = GraphBuilder()
    row = TensorType((3,), f32)

    def step(state: Value, piece: Value, whole: Value) -> tuple[Value, Value]:
        total = b.one(REGISTRY["add"](), b.one(REGISTRY["mul"](), state, whole), piece)
        return total, b.one(REGISTRY["relu"](), total)

    start, rows, factor = (
        b.input("h", row),
        b.input("x", TensorType((4, 3), f32)),
        b.input("f", row),
    )
    scan = Scan(b.body((row, row, row), step), 4, 1, (0,), (1,), (True,), (False,))
    graph = Graph((start, rows, factor), b.results(scan, start, rows, factor), ("last", "all"))
    model = export_model(graph)
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == ["Scan"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.tensor_type.shape).astype(np.float32) for v in graph.inputs]
    expected = interpret(graph, arrays)
    for results in (
        run_onnxruntime(model, arrays),
        interpret(import_model(model).graph, arrays),
    ):
        for got, want in zip(results, expected, strict=True):
            assert_close(got, want)


def test_scans_without_scanned_inputs_count_their_steps() -> None:
    b = GraphBuilder()
    row = TensorType((3,), f32)
    body = b.body((row,), lambda state: (b.one(REGISTRY["sin"](), state),))
    x = b.input("x", row)
    graph = Graph((x,), b.results(Scan(body, 5, 1), x), ("y",))
    model = export_model(graph)
    onnx.checker.check_model(model, full_check=True)
    data = np.array([0.1, 1, 2], np.float32)
    assert_close(run_onnxruntime(model, [data])[0], interpret(graph, [data])[0])


def test_unknown_element_types_are_refused() -> None:
    x = make_input("x", TensorType((2,), f4e2m1))
    with pytest.raises(GraphError, match="f4e2m1 cannot be exported") as caught:
        export_model(Graph((x,), (x,), ("y",)))
    assert caught.value.code == "WH1204"


# --------------------------------------------------------------- two operators in one ONNX node
def conv_graph(bias: Array, *, swapped: bool = False, more: bool = False) -> Graph:
    """A convolution and an addition; with `more`, something else reads the convolution too."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", TensorType((2, 3, 5, 5), f32))
    w = b.constant(rng.standard_normal((4, 3, 3, 3)).astype(np.float32))
    conv = b.one(REGISTRY["conv"]((1, 1), (1, 1, 1, 1), (1, 1), 1), x, w)
    summands = (b.constant(bias), conv) if swapped else (conv, b.constant(bias))
    outputs = (b.one(REGISTRY["add"](), *summands), *((b.one(REGISTRY["relu"](), conv),) * more))
    return Graph((x,), outputs, tuple(f"y{n}" for n in range(len(outputs))))


CHANNELS = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize(
    ("graph", "nodes"),
    [
        (conv_graph(CHANNELS.reshape(1, 4, 1, 1)), ["Conv"]),
        (conv_graph(CHANNELS.reshape(4, 1, 1), swapped=True), ["Conv"]),
        (conv_graph(np.ones((1, 1, 1, 5), np.float32)), ["Conv", "Add"]),
        (conv_graph(np.float32(3)), ["Conv", "Add"]),
        (conv_graph(np.ones((1, 2, 4, 1, 1), np.float32)), ["Conv", "Add"]),
        (conv_graph(CHANNELS.reshape(4, 1, 1), more=True), ["Conv", "Add", "Relu"]),
    ],
    ids=["bias", "in front", "along rows", "scalar", "broadcast", "read twice"],
)
def test_biases_of_convolutions(graph: Graph, nodes: list[str]) -> None:
    array = np.random.default_rng(1).standard_normal((2, 3, 5, 5)).astype(np.float32)
    for export in EXPORTS:
        model = export(graph)
        onnx.checker.check_model(model, full_check=True)
        assert sorted(n.op_type for n in model.graph.node) == sorted(nodes)
        for got, want in zip(run_onnxruntime(model, [array]), interpret(graph, [array])):
            assert_close(got, want)


@pytest.mark.parametrize(
    ("first", "low", "high", "nodes"),
    [
        ("maximum", 0.0, 6.0, ["Clip"]),
        ("minimum", 0.0, 6.0, ["Clip"]),
        ("maximum", 6.0, 0.0, ["Max", "Min"]),
        ("minimum", 6.0, 0.0, ["Max", "Min"]),
        ("maximum", np.array([0, 1, 2], np.float32), 6.0, ["Max", "Min"]),
        ("maximum", np.zeros((1, 1, 1), np.float32), 6.0, ["Max", "Min"]),
    ],
)
def test_bounds_are_a_clip(first: str, low: Array | float, high: float, nodes: list[str]) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((2, 3), f32))
    bounds = {"maximum": np.asarray(low, np.float32), "minimum": np.asarray(high, np.float32)}
    order = [first, *(bounds.keys() - {first})]
    made: Value = x
    for name in order:
        made = b.one(REGISTRY[name](), made, b.constant(bounds[name]))
    graph = Graph((x,), (made,), ("y",))
    model = export_model(graph)
    onnx.checker.check_model(model, full_check=True)
    assert sorted(n.op_type for n in model.graph.node) == nodes
    array = np.array([[-3, 0.5, 9], [np.inf, -np.inf, np.nan]], np.float32)
    assert_close(run_onnxruntime(model, [array])[0], interpret(graph, [array])[0])


# ------------------------------------------------------------------------------- older opsets
def test_the_oldest_opset_that_says_the_same() -> None:
    pool = REGISTRY["avg_pool"]((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
    wide = REGISTRY["avg_pool"]((3, 3), (1, 1), (1, 1, 1, 1), (2, 2))
    x = make_input("x", TensorType((1, 2, 8, 8), f32))
    half = make_input("x", TensorType((4,), bf16))
    graphs = {
        "old": Graph((x,), apply(pool, x), ("y",)),
        "dilated": Graph((x,), apply(wide, x), ("y",)),
        "gelu": Graph((x,), apply(REGISTRY["gelu"](), x), ("y",)),
        "bf16": Graph((half,), apply(REGISTRY["relu"](), half), ("y",)),
    }
    found = {name: portable_model(g).opset_import[0].version for name, g in graphs.items()}
    assert found.pop("old") == OLD_OPSET
    assert set(found.values()) == {OPSET}


UNARY = ["relu", "neg", "abs", "sigmoid", "tanh", "erf", "softsign", "gelu", "hard_swish"]
BINARY = ["add", "sub", "mul", "maximum", "minimum", "matmul"]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_graphs_mean_the_same_to_onnxruntime(data: st.DataObject) -> None:
    x = make_input("x", TensorType((4, 4), f32))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values: list[Value] = [x, make_constant(rng.standard_normal((4, 4)).astype(np.float32))]
    for _ in range(data.draw(st.integers(1, 10))):
        kind = data.draw(st.sampled_from(["unary", "binary", "composite", "move"]))
        pick = st.sampled_from(values)
        if kind == "unary":
            made = apply(REGISTRY[data.draw(st.sampled_from(UNARY))](), data.draw(pick))
        elif kind == "binary":
            name = data.draw(st.sampled_from(BINARY))
            made = apply(REGISTRY[name](), data.draw(pick), data.draw(pick))
        elif kind == "composite":
            softmax = REGISTRY["softmax"](axis=data.draw(st.integers(0, 1)))
            made = apply(softmax, data.draw(pick))
        else:
            parts = apply(REGISTRY["split"](0, (1, 3)), data.draw(pick))
            made = apply(REGISTRY["concat"](0), parts[1], parts[0])
            made = apply(REGISTRY["transpose"]((1, 0)), made[0])
        values += made
    graph = Graph((x,), (values[-1],), ("y",))
    array = rng.uniform(-1, 1, (4, 4)).astype(np.float32)
    (want,) = interpret(graph, [array])
    for candidate, export in itertools.product((graph, optimize(graph)), EXPORTS):
        model = export(candidate)
        onnx.checker.check_model(model, full_check=True)
        (got,) = run_onnxruntime(model, [array])
        scale = max(1.0, float(np.abs(want).max()))
        assert_close(got / np.float32(scale), want / np.float32(scale), 1e-3)
