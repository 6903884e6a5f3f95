"""Models whose shapes depend on data run stage by stage."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.small_models import F32, I64, call, graph, model, node, tensor
from whet.core.errors import ModelError
from whet.frontend.onnx import import_model
from whet.frontend.onnx.staging import Tail

W = np.arange(5, dtype=np.float32) * 10


def picker() -> object:
    """The elements of W where x is not zero, plus b."""
    return model(
        [
            node("NonZero", "x", "places"),
            node("Squeeze", "places axis", "flat"),
            node("Gather", "w flat", "picked"),
            node("Add", "picked b", "y"),
            node("Neg", "x", "z"),
        ],
        [tensor("x", [5]), tensor("b", [1])],
        [tensor("y", ["n"]), tensor("z", [5])],
        {"w": W, "axis": np.array([0])},
    )


def test_nodes_behind_a_host_operator_wait_for_its_result():
    imported = import_model(picker())
    assert [n.op.name for n in imported.graph.nodes] == ["nonzero", "neg"]
    b = np.float32([1])
    for x in ([1, 0, 0, 2, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]):
        x = np.float32(x)
        y, z = call(imported, x=x, b=b)
        np.testing.assert_array_equal(y, W[x != 0] + b)
        np.testing.assert_array_equal(z, -x)


def test_a_stage_is_imported_once_per_shape():
    imported = import_model(picker())
    assert isinstance(imported.tail, Tail)
    places = [np.array([[0, 3]]), np.array([[1, 2]]), np.array([[1]])]
    b, z = np.float32([1]), np.zeros(5, np.float32)
    order = [p.name for p in imported.tail.ports]
    stages = [
        imported.tail.stage([{"places": p, "b": b, "z": z}[name] for name in order]) for p in places
    ]
    assert stages[0] is stages[1]
    assert stages[0] is not stages[2]


def test_a_shape_that_is_computed_from_data_is_a_value_of_the_next_stage():
    made = model(
        [
            node("ArgMax", "x", "k", axis=0, keepdims=1),
            node("TopK", "x k", "values indices", axis=0),
        ],
        [tensor("x", [100])],
        [tensor("values"), tensor("indices", None, I64)],
    )
    imported = import_model(made)
    x = np.arange(100, dtype=np.float32)
    x[3] = 1000
    values, _ = call(imported, x=x)
    np.testing.assert_array_equal(values, [1000, 99, 98])


def test_a_loop_whose_count_is_computed_from_data():
    body = graph(
        [node("Add", "v x", "next"), node("Identity", "cond", "out")],
        [tensor("n", [], I64), tensor("cond", [], 9), tensor("v", [100])],
        [tensor("out", [], 9), tensor("next")],
    )
    made = model(
        [node("ArgMax", "x", "k", axis=0, keepdims=0), node("Loop", "k _ x", "y", body=body)],
        [tensor("x", [100])],
        [tensor("y", [100], F32)],
    )
    imported = import_model(made)
    for peak in (2, 0, 5):
        x = np.eye(100, dtype=np.float32)[peak]
        np.testing.assert_array_equal(call(imported, x=x)[0], x * (peak + 1))


def test_a_large_input_that_determines_a_shape_is_refused():
    made = model(
        [node("Reshape", "x shape", "y")],
        [tensor("x", [1]), tensor("shape", [5000], I64)],
        [tensor("y")],
    )
    with pytest.raises(ModelError, match="depends on the value of 'shape'") as raised:
        import_model(made, {"shape": np.ones(5000, np.int64)})
    assert raised.value.code == "WH2005"
