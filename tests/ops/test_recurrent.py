"""Recurrent layers and Scan against ONNX Runtime, and bodies as attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.targets import HOST
from whet.build.native import NO_CACHE, build
from whet.core.dtypes import DType, f32, f64
from whet.core.errors import GraphError, OperatorError
from whet.core.types import TensorType
from whet.graph.body import close_body, fresh_inputs
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value, apply, make_input
from whet.graph.interpret import interpret
from whet.integrate.onnx_backend import run_model
from whet.ops.arithmetic import Add, Mul, Tanh
from whet.ops.matmul import MatMul
from whet.ops.random import RandomNormal
from whet.ops.recurrent import LSTM
from whet.ops.scan import Scan

RNG = np.random.default_rng(7)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
TIME, BATCH, FEATURE, HIDDEN = 5, 3, 4, 2
LENGTHS = np.array([5, 2, 3], np.int32)


def inputs_of(name: str, directions: int, *, peepholes: bool = False, lengths: bool = False,
              states: bool = True, bias: bool = True) -> list[Any]:  # fmt: skip
    """x, W, R, B, lengths, initial states and peepholes with random weights."""
    rows = GATES[name] * HIDDEN

    def normal(*shape: int) -> Any:
        return RNG.normal(size=shape).astype(np.float32)

    state = normal(directions, BATCH, HIDDEN) if states else None
    cell = normal(directions, BATCH, HIDDEN) if states else None
    return [
        normal(TIME, BATCH, FEATURE), normal(directions, rows, FEATURE),
        normal(directions, rows, HIDDEN), normal(directions, 2 * rows) if bias else None,
        LENGTHS if lengths else None, state, *([cell] if name == "LSTM" else []),
        *([normal(directions, 3 * HIDDEN)] if peepholes else []),
    ]  # fmt: skip


@pytest.mark.parametrize("name", list(GATES))
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
def test_directions_and_lengths(
    name: str, direction: str, lengths: bool, same_as_onnxruntime: Callable[..., None]
) -> None:
    directions = 2 if direction == "bidirectional" else 1
    same_as_onnxruntime(name, inputs_of(name, directions, lengths=lengths), opset=14,
                        outputs=3 if name == "LSTM" else 2, direction=direction,
                        hidden_size=HIDDEN)  # fmt: skip


@pytest.mark.parametrize("name", list(GATES))
def test_defaults(name: str, same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime(name, inputs_of(name, 1, states=False, bias=False), opset=14,
                        outputs=2, hidden_size=HIDDEN)  # fmt: skip


@pytest.mark.parametrize("name", list(GATES))
def test_clip(name: str, same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime(name, inputs_of(name, 1), opset=14, outputs=2, hidden_size=HIDDEN, clip=0.3)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_gates_that_are_almost_closed(dtype: DType) -> None:
    """The smallest numbers of a gate are right in both engines: 1 / (1 + exp(-x)), and no
    difference of numbers near one."""
    op = LSTM.with_defaults()
    shapes = [(1, 1, 1), (4, 1), (4, 1), (8,), (1, 1), (1, 1)]
    arrays = [np.zeros(s, dtype.numpy) for s in shapes]
    arrays[3][:4] = [2, -60, 0, 1]  # the output gate is almost closed
    inputs = tuple(make_input(f"x{n}", TensorType(s, dtype)) for n, s in enumerate(shapes))
    graph = Graph(inputs, apply(op, *inputs)[1:2], ("h",))
    expected = 1 / (1 + np.exp(60.0)) * np.tanh(1 / (1 + np.exp(-2.0)) * np.tanh(1.0))
    for run in (build(graph, HOST, 1, NO_CACHE), partial(interpret, graph)):
        np.testing.assert_allclose(run(arrays)[0], [[expected]], rtol=1e-5)


@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_gru_reset(linear_before_reset: int, same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime("GRU", inputs_of("GRU", 2), opset=14, outputs=2, hidden_size=HIDDEN,
                        direction="bidirectional",
                        linear_before_reset=linear_before_reset)  # fmt: skip


@pytest.mark.parametrize("attributes", [{}, {"clip": 0.3}])
def test_lstm_peepholes(
    attributes: dict[str, Any], same_as_onnxruntime: Callable[..., None]
) -> None:
    same_as_onnxruntime("LSTM", inputs_of("LSTM", 2, peepholes=True), opset=14, outputs=3,
                        direction="bidirectional", hidden_size=HIDDEN, **attributes)  # fmt: skip


@pytest.mark.parametrize("attributes", [
    {"activations": ["Relu"]}, {"activations": ["Sigmoid"], "clip": 0.5},
    {"activations": ["HardSigmoid"], "activation_alpha": [0.3], "activation_beta": [0.4]},
    {"activations": ["ScaledTanh"], "activation_alpha": [0.7], "activation_beta": [1.3]},
    {"activations": ["LeakyRelu"], "activation_alpha": [0.2]},
    {"activations": ["Elu"], "activation_alpha": [0.5]},
    {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]},
    {"activations": ["Softsign"]}, {"activations": ["Softplus"]},
    {"activations": ["ThresholdedRelu"], "activation_alpha": [0.4]},
])  # fmt: skip
def test_activations(attributes: dict[str, Any], same_as_onnxruntime: Callable[..., None]) -> None:
    same_as_onnxruntime("RNN", inputs_of("RNN", 1), opset=14, outputs=2, hidden_size=HIDDEN,
                        **attributes)  # fmt: skip


@pytest.mark.parametrize("name", list(GATES))
def test_batch_first_gives_the_same_numbers(name: str, whet_node: Callable[..., list[Any]]) -> None:
    values = inputs_of(name, 2, lengths=True)
    outputs = 3 if name == "LSTM" else 2
    options = {"opset": 14, "outputs": outputs, "direction": "bidirectional", "hidden_size": HIDDEN}
    time_first = whet_node(name, values, **options)
    turned = [values[0].swapaxes(0, 1), *values[1:5], *(v.swapaxes(0, 1) for v in values[5:])]
    batch_first = whet_node(name, turned, layout=1, **options)
    np.testing.assert_allclose(batch_first[0], time_first[0].transpose(2, 0, 1, 3), rtol=1e-6)
    for a, b in zip(batch_first[1:], time_first[1:], strict=True):
        np.testing.assert_allclose(a, b.swapaxes(0, 1), rtol=1e-6)


def test_coupled_gates(whet_node: Callable[..., list[Any]]) -> None:
    """input_forget: what is forgotten makes room for what comes in."""
    values = inputs_of("LSTM", 1)
    y, _, cell = whet_node("LSTM", values, opset=14, outputs=3, hidden_size=HIDDEN, input_forget=1)
    x, w, r, bias, _, h, c = (None if v is None else v.astype(np.float64) for v in values)
    h, c = h[0], c[0]
    for t in range(TIME):
        total = x[t] @ w[0].T + h @ r[0].T + bias[0].reshape(2, -1).sum(0)
        i, o, _, g = np.split(total, 4, axis=1)
        gate = 1 / (1 + np.exp(-i))
        c = (1 - gate) * c + gate * np.tanh(g)
        h = np.tanh(c) / (1 + np.exp(-o))
        np.testing.assert_allclose(y[t, 0], h, atol=1e-5)
    np.testing.assert_allclose(cell[0], c, atol=1e-5)


def test_wrong_shapes_are_refused() -> None:
    op, good = LSTM.samples()[0].op, LSTM.samples()[0].types
    with pytest.raises(OperatorError) as error:
        op.infer_types((*good[:2], good[1], *good[3:]))
    assert error.value.code == "WH1102"


# --------------------------------------------------------------------------------------- scan
def scan_model(attributes: dict[str, Any], opset: int) -> onnx.ModelProto:
    """state' = tanh(state * w + x), y = state' + x, where w is a value of the outer graph."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "w"], ["m"]),
            helper.make_node("Add", ["m", "e"], ["a"]),
            helper.make_node("Tanh", ["a"], ["s2"]),
            helper.make_node("Add", ["s2", "e"], ["o"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("s", "e")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("s2", "o")],
    )
    node = helper.make_node("Scan", ["state", "x"], ["last", "y"], body=body, num_scan_inputs=1,
                            **attributes)  # fmt: skip
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
             for n, s in (("state", [3]), ("x", [3, 3]), ("w", [3]))]  # fmt: skip
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=n)
                                                   for n in ("last", "y")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    return model


@pytest.mark.parametrize("attributes", [
    {}, {"scan_input_directions": [1]}, {"scan_output_directions": [1]},
    {"scan_input_axes": [1], "scan_output_axes": [-1]},
])  # fmt: skip
def test_scan(attributes: dict[str, Any]) -> None:
    import onnxruntime

    model = scan_model(attributes, 16)
    arrays = [RNG.normal(size=s).astype(np.float32) for s in ((3,), (3, 3), (3,))]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    expected = session.run(None, dict(zip(("state", "x", "w"), arrays)))
    for got, want in zip(run_model(model, arrays), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


def recurrence(builder: GraphBuilder) -> Callable[..., tuple[Value, ...]]:
    def step(h: Value, x: Value, w: Value) -> tuple[Value, ...]:
        new = builder.one(Tanh(), builder.one(Add(), x, builder.one(MatMul(), h, w)))
        return new, new

    return step


def matrix(*shape: int) -> TensorType:
    return TensorType(shape, f32)


def test_bodies_of_equal_content_are_equal() -> None:
    builder = GraphBuilder()
    types = (matrix(2, 3), matrix(2, 3), matrix(3, 3))
    first, second = (builder.body(types, recurrence(builder)) for _ in range(2))
    other = builder.body(types, lambda h, x, w: (h, x))
    assert first == second
    assert hash(first) == hash(second)
    assert repr(first) == repr(second)
    assert first != other
    assert Scan(first, 4, 1, (0,), (0,)) == Scan(second, 4, 1, (0,), (0,))


def test_what_does_not_depend_on_the_step_is_computed_outside() -> None:
    builder = GraphBuilder()
    w = make_input("w", matrix(3, 3))
    (h,) = fresh_inputs([matrix(2, 3)])
    doubled = builder.one(Add(), w, w)
    weights = builder.constant(RNG.normal(size=(100, 3)).astype(np.float32))
    product = builder.one(MatMul(), weights, builder.one(Add(), doubled, doubled))
    out = builder.one(Mul(), h, builder.constant(np.float32(2)))
    body, outside = close_body([h], [builder.one(MatMul(), out, doubled), product])
    assert outside == (doubled, product)
    assert body.input_types == (matrix(2, 3), matrix(3, 3), matrix(100, 3))
    assert len(body.graph.constants) == 1


def test_every_step_draws_its_own_random_numbers() -> None:
    builder = GraphBuilder()
    noise = RandomNormal((4,))
    body = builder.body((matrix(4),), lambda x: (builder.one(Add(), x, builder.one(noise)),))
    (total,) = body.run((np.zeros(4, np.float32),))
    assert len(body.graph.nodes) == 2
    assert (total != body.run((np.zeros(4, np.float32),))[0]).any()


def test_a_step_may_not_read_from_outside() -> None:
    builder = GraphBuilder()
    w = make_input("w", matrix(3))
    with pytest.raises(GraphError, match="WH1202"):
        builder.body((matrix(3),), lambda x: (builder.one(Add(), x, w),))


def test_precise_runs_carry_states_in_double() -> None:
    """The yardstick for errors must not round a state to f32 between steps."""
    builder = GraphBuilder()
    body = builder.body((matrix(1), matrix(1)), lambda s, x: (builder.one(Add(), s, x),))
    state, xs = make_input("s", matrix(1)), make_input("x", matrix(1000, 1))
    (total,) = builder.results(Scan(body, 1000, 1, (0,)), state, xs)
    graph = Graph((state, xs), (total,), ("y",))
    arrays = [np.zeros(1, np.float32), np.full((1000, 1), 0.1, np.float32)]
    (y,) = interpret(graph, arrays, precise=True)
    np.testing.assert_allclose(y, 1000 * np.float64(np.float32(0.1)), rtol=1e-12)


def test_scan_refuses_what_does_not_fit_its_body() -> None:
    builder = GraphBuilder()
    body = builder.body((matrix(2, 3), matrix(2, 3), matrix(3, 3)), recurrence(builder))
    good = (matrix(2, 3), matrix(4, 2, 3), matrix(3, 3))
    assert Scan(body, 4, 1, (0,), (0,)).infer_types(good) == (matrix(2, 3), matrix(4, 2, 3))
    for op, types in (
        (Scan(body, 5, 1, (0,), (0,)), good),
        (Scan(body, 4, 1, (0,), (3,)), good),
        (Scan(body, 4, 1, (0,), ()), good),
        (Scan(body, 4, 1, (0,), (0,)), (*good[:2], matrix(2, 2))),
    ):
        with pytest.raises(OperatorError):
            op.infer_types(types)
