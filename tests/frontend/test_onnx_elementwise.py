"""Element-wise ONNX operators and quantization give what ONNX Runtime gives, at many opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from whet.core.dtypes import bf16
from whet.core.errors import UnsupportedError
from whet.core.types import Array
from whet.frontend.onnx import import_model
from whet.graph.interpret import interpret


def one_node(op: str, opset: int, arrays: list[Array | None], **attributes: Any) -> onnx.ModelProto:
    """A model of one node with these inputs (None: left out) and one output per operator."""
    outputs = ["y", "y2", "y3"] if op == "DynamicQuantizeLinear" else ["y"]
    names = [f"x{n}" if a is not None else "" for n, a in enumerate(arrays)]
    node = helper.make_node(op, names, outputs, **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays)
        if a is not None
    ]
    graph = helper.make_graph([node], op, inputs, [onnx.ValueInfoProto(name=n) for n in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run_whet(model: onnx.ModelProto, arrays: list[Array]) -> tuple[Array, ...]:
    names = [i.name for i in model.graph.input]
    imported = import_model(model, dict(zip(names, arrays)))
    flat = imported.graph_inputs(imported.flatten(arrays))
    return imported.pack(interpret(imported.graph, flat))


def check_against_peer(op: str, opset: int, *arrays: Any, **attributes: Any) -> None:
    given_or_none = [None if a is None else np.asarray(a) for a in arrays]
    model = one_node(op, opset, given_or_none, **attributes)
    given = [a for a in given_or_none if a is not None]
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, dict(zip((i.name for i in model.graph.input), given)))
    for got, want in zip(run_whet(model, given), expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def reals(*shape: int, low: float = -3.0, high: float = 3.0, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def codes(dtype: Any, *shape: int, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


UNARY = [
    "Abs", "Neg", "Sign", "Exp", "Floor", "Ceil", "Round", "Sin", "Cos", "Tan", "Atan", "Sinh",
    "Cosh", "Tanh", "Asinh", "Erf", "Reciprocal", "Sigmoid", "Relu", "Elu", "Selu", "Celu",
    "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Mish",
    "Shrink", "IsNaN", "IsInf",
]  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_number(op: str) -> None:
    check_against_peer(op, 18, reals(4, 5))


@pytest.mark.parametrize(("op", "low", "high"), [
    ("Log", 0.1, 5), ("Sqrt", 0, 5), ("Asin", -1, 1), ("Acos", -1, 1), ("Atanh", -0.9, 0.9),
    ("Acosh", 1.1, 5),
])  # fmt: skip
def test_functions_with_a_domain(op: str, low: float, high: float) -> None:
    check_against_peer(op, 13, reals(7, low=low, high=high))


@pytest.mark.parametrize("opset", [7, 13, 14])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic_broadcasts(op: str, opset: int) -> None:
    check_against_peer(op, opset, reals(2, 1, 4), reals(3, 1, low=1))
    whole = np.array([[-7, 7, 5]]), np.array([[2], [-2]])
    check_against_peer(op, opset, *whole)


@pytest.mark.parametrize(("op", "opset"), [
    ("Less", 9), ("Greater", 9), ("Equal", 11), ("LessOrEqual", 12), ("GreaterOrEqual", 16),
])  # fmt: skip
def test_comparisons(op: str, opset: int) -> None:
    check_against_peer(op, opset, np.float32([1, 2, np.nan]), np.float32([2, 2, 2]))


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
def test_any_number_of_inputs(op: str) -> None:
    for count in (1, 2, 4):
        check_against_peer(op, 13, *(reals(3, 4, seed=n) for n in range(count)))


@pytest.mark.parametrize(("base", "exponent"), [
    ("f4", "f4"), ("f4", "i8"), ("i4", "f4"), ("i8", "i4"), ("f8", "f4"),
])  # fmt: skip
def test_power_of_mixed_types(base: str, exponent: str) -> None:
    check_against_peer("Pow", 13, np.array([1, 2, 3], base), np.array([3, 2, 1], exponent))


def test_clip_takes_attributes_then_inputs() -> None:
    x = reals(10)
    check_against_peer("Clip", 6, x, min=-1.0, max=0.5)
    check_against_peer("Clip", 10, x, max=0.5)
    check_against_peer("Clip", 11, x, np.float32(-1), np.float32(0.5))
    check_against_peer("Clip", 13, x, None, np.float32(0.5))
    check_against_peer("Clip", 13, x)


def test_remainders() -> None:
    x, y = np.array([-7, 7, -7, 7]), np.array([3, 3, -3, -3])
    check_against_peer("Mod", 13, x, y)
    check_against_peer("Mod", 13, x, y, fmod=1)
    check_against_peer("Mod", 13, x.astype("f4"), y.astype("f4"), fmod=1)


def test_attributes_reach_the_operator() -> None:
    x = reals(3, 4)
    check_against_peer("LeakyRelu", 16, x, alpha=0.3)
    check_against_peer("Elu", 6, x, alpha=0.7)
    check_against_peer("Selu", 6, x, alpha=1.5, gamma=2.0)
    check_against_peer("Celu", 12, x, alpha=0.5)
    check_against_peer("HardSigmoid", 6, x, alpha=0.4, beta=0.3)
    check_against_peer("ThresholdedRelu", 10, x, alpha=0.5)
    check_against_peer("Shrink", 9, x, bias=0.2, lambd=1.0)
    check_against_peer("IsInf", 10, np.float32([np.inf, -np.inf]), detect_negative=0)
    check_against_peer("Gelu", 20, x, approximate="tanh")
    check_against_peer("Gelu", 20, x)
    check_against_peer("PRelu", 9, x, reals(3, 1, seed=1))


@pytest.mark.parametrize("to", ["f8", "f2", "i4", "u1", "?"])
def test_cast(to: str) -> None:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    check_against_peer("Cast", 13, reals(9, low=0, high=9), to=number)


# ------------------------------------------------------------------------------ quantization
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("opset", [13, 19, 21])
def test_quantization(dtype: Any, opset: int) -> None:
    x, scale = reals(2, 3, 4, low=-9, high=9), reals(3, low=0.02, high=0.1)
    zero = np.array([3, 4, 5], dtype)
    check_against_peer("QuantizeLinear", opset, x, scale, zero)
    check_against_peer("QuantizeLinear", opset, x, scale[0], zero[0])
    check_against_peer("QuantizeLinear", opset, x, scale, axis=-2)
    check_against_peer("DequantizeLinear", opset, codes(dtype, 2, 3, 4), scale, zero, axis=1)
    check_against_peer("DequantizeLinear", opset, codes(dtype, 5), scale[0])


def test_blocked_quantization() -> None:
    x, scale = reals(2, 6, low=-9, high=9), reals(2, 3, low=0.02, high=0.1)
    zero = codes(np.uint8, 2, 3)
    check_against_peer("QuantizeLinear", 21, x, scale, zero, axis=1, block_size=2)
    small = codes(np.uint8, 2, 6)
    check_against_peer("DequantizeLinear", 21, small, scale, zero, axis=1, block_size=2)


@pytest.mark.parametrize("x", [reals(4, 6), np.abs(reals(5)), np.zeros(3, np.float32)])
def test_dynamic_quantization(x: Array) -> None:
    check_against_peer("DynamicQuantizeLinear", 11, x)


# ---------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(("op", "opset", "arrays", "attributes", "reason"), [
    ("Cast", 13, [reals(2)], {"to": onnx.TensorProto.STRING}, "string tensors are not supported"),
    ("PRelu", 9, [reals(3), reals(2, 3)], {}, "a slope of shape"),
    ("Gelu", 20, [reals(3)], {"approximate": "sigmoid"}, "approximate='sigmoid'"),
    ("QuantizeLinear", 21, [reals(3), np.float32(1), np.uint8(0)],
     {"output_dtype": onnx.TensorProto.INT8}, "output_dtype i8 with a zero point of u8"),
])  # fmt: skip
def test_refusals(op: str, opset: int, arrays: Any, attributes: Any, reason: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        run_whet(one_node(op, opset, arrays, **attributes), arrays)
    assert reason in str(error.value)


def test_cast_to_bfloat16() -> None:
    model = one_node("Cast", 13, [reals(4)], to=onnx.TensorProto.BFLOAT16)
    assert run_whet(model, [reals(4)])[0].dtype == bf16.numpy
