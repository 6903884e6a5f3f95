"""Functions of the model and of the operator sets are inlined."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import AttributeProto, helper

from tests.frontend.small_models import model, node, run, tensor
from whet.core.errors import ModelError
from whet.frontend.onnx import import_model
from whet.frontend.onnx.mapping import CONVERTERS

X = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)
OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]


def leaky(alpha: float | None = None) -> object:
    """mine.Leak(x; alpha = 0.5) = max(x, alpha * x)"""
    constant = node("Constant", "", "a")
    constant.attribute.append(
        AttributeProto(name="value_float", ref_attr_name="alpha", type=AttributeProto.FLOAT)
    )
    function = helper.make_function(
        "mine",
        "Leak",
        ["v"],
        ["r"],
        [constant, node("Mul", "v a", "scaled"), node("Max", "v scaled", "r")],
        OPSETS,
        attribute_protos=[helper.make_attribute("alpha", 0.5)],
    )
    given = {} if alpha is None else {"alpha": alpha}
    return model(
        [node("Leak", "x", "y", domain="mine", **given)],
        [tensor("x", [2, 2])],
        [tensor("y")],
        functions=[function],
        domains={"mine": 1},
    )


@pytest.mark.parametrize(("given", "alpha"), [(None, 0.5), (0.25, 0.25)])
def test_a_function_of_the_model_with_its_attribute(given, alpha):
    (y,) = run(leaky(given), x=X)
    np.testing.assert_array_equal(y, np.maximum(X, alpha * X))


def test_a_function_that_calls_itself():
    body = [node("Again", "v", "r", domain="mine")]
    function = helper.make_function("mine", "Again", ["v"], ["r"], body, OPSETS)
    made = model(
        [node("Again", "x", "y", domain="mine")],
        [tensor("x", [2, 2])],
        [tensor("y")],
        functions=[function],
        domains={"mine": 1},
    )
    with pytest.raises(ModelError, match="levels deep"):
        import_model(made)


def test_operators_without_a_mapping_are_inlined_from_their_declared_body():
    assert ("", "HannWindow") not in CONVERTERS
    made = model(
        [node("HannWindow", "size", "window"), node("Mul", "x window", "y")],
        [tensor("x", [2, 2])],
        [tensor("y")],
        {"size": np.array(2)},
    )
    (y,) = run(made, x=X)
    np.testing.assert_allclose(y, X * [0, 1], atol=1e-6)


def test_bodies_that_depend_on_the_types_of_the_inputs():
    assert ("", "SoftmaxCrossEntropyLoss") not in CONVERTERS
    made = model(
        [node("SoftmaxCrossEntropyLoss", "x labels", "y", reduction="none")],
        [tensor("x", [2, 2])],
        [tensor("y")],
        {"labels": np.array([0, 1])},
    )
    (y,) = run(made, x=X)
    rows = X - np.log(np.exp(X).sum(1, keepdims=True))
    np.testing.assert_allclose(y, -rows[[0, 1], [0, 1]], rtol=1e-5)
