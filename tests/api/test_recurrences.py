"""Recurrences written out in ONNX: compiled with work moved out of their steps, against others."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import whet
from tests.frontend.small_models import BOOL, F32, I64, graph, model, node, tensor
from whet.core.types import Array
from whet.graph.passes import PASSES
from whet.graph.rewrite import body_graph
from whet.ops.scan import Scan

STEPS, BATCH, FEATURES, HIDDEN, CLASSES = 40, 2, 5, 8, 11
RNG = np.random.default_rng(3)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


WEIGHTS = {
    "w": normal(FEATURES, HIDDEN), "u": normal(HIDDEN, HIDDEN) / 3, "b": normal(HIDDEN),
    "v": normal(HIDDEN, CLASSES),
}  # fmt: skip
CELL = [
    node("MatMul", "row w", "from_x"),
    node("MatMul", "h u", "from_h"),
    node("Add", "from_x from_h", "sum"),
    node("Add", "sum b", "biased"),
    node("Tanh", "biased", "next"),
    node("MatMul", "next v", "scores"),
    node("Softmax", "scores", "y", axis=-1),
]
STATE, RESULT = tensor("h", [BATCH, HIDDEN]), tensor("y", [BATCH, CLASSES])


def scan(axis: int, direction: int, out_axis: int, out_direction: int) -> Any:
    """A Scan over the features, whose results are put together along another axis."""
    body = graph(CELL, [STATE, tensor("row", [BATCH, FEATURES])], [tensor("next"), RESULT])
    made = node(
        "Scan", "start x", "last all", body=body, num_scan_inputs=1,
        scan_input_axes=[axis], scan_input_directions=[direction],
        scan_output_axes=[out_axis], scan_output_directions=[out_direction],
    )  # fmt: skip
    shape = [BATCH, FEATURES]
    shape.insert(axis, STEPS)
    inputs = [tensor("start", [BATCH, HIDDEN]), tensor("x", shape)]
    return model([made], inputs, [tensor("last"), tensor("all")], WEIGHTS)


def loop() -> Any:
    """The same as a Loop that picks its rows by the number of the round."""
    given = [tensor("n", [], I64), tensor("cond", [], BOOL), STATE]
    nodes = [node("Gather", "x n", "row", axis=0), node("Identity", "cond", "go"), *CELL]
    body = graph(nodes, given, [tensor("go", [], BOOL), tensor("next"), RESULT])
    made = node("Loop", "count true start", "last all", body=body)
    inputs = [tensor("start", [BATCH, HIDDEN]), tensor("x", [STEPS, BATCH, FEATURES], F32)]
    constants = {**WEIGHTS, "count": np.int64(STEPS), "true": np.bool_(True)}
    return model([made], inputs, [tensor("last"), tensor("all")], constants)


MODELS = [
    pytest.param(scan(0, 0, 0, 0), id="scan"),
    pytest.param(scan(1, 1, 2, 0), id="scan-backward"),
    pytest.param(scan(2, 0, 1, 1), id="scan-written-backward"),
    pytest.param(loop(), id="loop"),
]


def inputs_of(made: Any) -> dict[str, Array]:
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in made.graph.input}
    return {name: normal(*shape) for name, shape in shapes.items()}


def run(compiled: whet.CompiledModel, inputs: dict[str, Array]) -> list[Array]:
    return list(compiled.results(*inputs.values()).values())


@pytest.mark.parametrize("made", MODELS)
@pytest.mark.parametrize("numerics", ["real", "exact", "guarded"])
def test_recurrences_against_onnxruntime(made: Any, numerics: str) -> None:
    inputs = inputs_of(made)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    compiled = whet.compile(made, threads=1, numerics=numerics)
    for got, want in zip(run(compiled, inputs), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    (body,) = (
        [n.op.name for n in body_graph(n.op.body).nodes]
        for n in compiled.graph.nodes
        if isinstance(n.op, Scan)
    )
    assert body.count("matmul") == (1 if numerics == "real" else 3)


@pytest.mark.parametrize("made", MODELS)
def test_exact_numerics_give_the_same_bits(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of(made)
    with_pass = run(whet.compile(made, threads=1, numerics="exact"), inputs)
    others = [p for p in PASSES if p.name != "lift_steps"]
    assert len(others) == len(PASSES) - 1
    monkeypatch.setattr("whet.graph.passes.PASSES", others)
    without = run(whet.compile(made, threads=1, numerics="exact"), inputs)
    for got, want in zip(with_pass, without, strict=True):
        np.testing.assert_array_equal(got, want)


def test_results_without_a_state_leave_in_exact_numerics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kernels of other extents give the same bits, remainders of vectors included."""
    cell = [
        node("Exp", "row", "grown"),
        node("Sigmoid", "grown", "gate"),
        node("ReduceMax", "gate", "most", axes=[1], keepdims=1),
        node("Sub", "gate most", "y"),
        node("Add", "h row", "next"),
    ]
    row = tensor("row", [3, 13])
    body = graph(cell, [tensor("h", [3, 13]), row], [tensor("next"), tensor("y")])
    made = model(
        [node("Scan", "start x", "last all", body=body, num_scan_inputs=1)],
        [tensor("start", [3, 13]), tensor("x", [7, 3, 13])],
        [tensor("last"), tensor("all")],
        opset=17,
    )
    inputs = inputs_of(made)
    compiled = whet.compile(made, threads=1, numerics="exact")
    (body_after,) = (n.op for n in compiled.graph.nodes if isinstance(n.op, Scan))
    assert [n.op.name for n in body_graph(body_after.body).nodes] == ["add"]
    with_pass = run(compiled, inputs)
    monkeypatch.setattr("whet.graph.passes.PASSES", [p for p in PASSES if p.name != "lift_steps"])
    without = run(whet.compile(made, threads=1, numerics="exact"), inputs)
    for got, want in zip(with_pass, without, strict=True):
        np.testing.assert_array_equal(got, want)
