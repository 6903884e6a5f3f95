"""Graphs whose values are kept in half precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from whet.core.dtypes import DType, bf16, f16, f32, i64
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Graph, Value
from whet.graph.interpret import interpret
from whet.graph.passes.half_precision import half_precision
from whet.ops.base import REGISTRY, make_op

HALVES = {f16: 2e-3, bf16: 2e-2}
"""Errors of short networks, as a part of the size of results."""
RNG = np.random.default_rng(0)


def graph_of(make: Callable[[GraphBuilder, Value], Value], shape: tuple[int, ...]) -> Graph:
    b = GraphBuilder()
    x = b.input("x", TensorType(shape, f32))
    return Graph((x,), (make(b, x),), ("y",))


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def network(b: GraphBuilder, x: Value) -> Value:
    """A convolution, a residual, the mean of every channel, a product and a softmax."""
    first = b.one(
        make_op("conv", {"pads": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1)}),
        x, b.constant(weights(8, 8, 3, 3)),
    )  # fmt: skip
    kept = b.one(REGISTRY["relu"](), b.one(REGISTRY["add"](), first, x))
    mean = b.one(make_op("reduce_mean", {"axes": (2, 3)}), kept)
    scores = b.one(REGISTRY["matmul"](), mean, b.constant(weights(8, 10)))
    return b.one(make_op("softmax", {"axis": 1}), scores)


def normalized(b: GraphBuilder, x: Value) -> Value:
    """A normalization, written out: its variance is far below what f16 can hold."""
    do = REGISTRY
    centred = b.one(
        do["sub"](), x, b.one(make_op("reduce_mean", {"axes": (1,), "keepdims": True}), x)
    )
    square = b.one(do["mul"](), centred, centred)
    variance = b.one(make_op("reduce_mean", {"axes": (1,), "keepdims": True}), square)
    around = b.one(do["add"](), variance, b.constant(np.float32(1e-12)))
    return b.one(do["div"](), centred, b.one(do["sqrt"](), around))


def types(graph: Graph, name: str) -> list[DType]:
    return [v.type.dtype for n in graph.nodes if n.op.name == name for v in n.results]


def error(graph: Graph, half: DType, x: Array) -> float:
    (want,) = interpret(graph, [x])
    (got,) = interpret(half_precision(graph, half), [x])
    assert got.dtype == want.dtype
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_values_inside_are_halves(half: DType) -> None:
    before = graph_of(network, (1, 8, 12, 12))
    after = half_precision(before, half)
    assert [v.type for v in after.inputs] == [v.type for v in before.inputs]
    assert [v.type for v in after.outputs] == [v.type for v in before.outputs]
    assert after.output_names == before.output_names
    for name in ("conv", "add", "relu", "matmul", "softmax"):
        assert types(after, name) == [half]
    assert types(after, "reduce_mean") == [f32]
    assert {c.type.dtype for c in after.constants} == {half}
    assert (
        error(before, half, RNG.standard_normal((1, 8, 12, 12)).astype(np.float32)) < HALVES[half]
    )


def test_an_input_is_converted_once() -> None:
    after = half_precision(graph_of(network, (1, 8, 12, 12)), f16)
    (x,) = after.inputs
    assert [n.op.name for n in after.users[x]] == ["cast"]


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_small_variances_are_not_lost(half: DType) -> None:
    before = graph_of(normalized, (4, 64))
    after = half_precision(before, half)
    assert types(after, "mul") == types(after, "sqrt") == types(after, "add") == [f32]
    assert types(after, "sub") == [f32]  # of a mean, which is wide, and then rounded
    assert error(before, half, (RNG.standard_normal((4, 64)) * 1e-4).astype(np.float32)) < 5e-2


def test_exponentials_stay_wide() -> None:
    def softmax(b: GraphBuilder, x: Value) -> Value:
        e = b.one(REGISTRY["exp"](), x)
        total = b.one(make_op("reduce_sum", {"axes": (1,), "keepdims": True}), e)
        return b.one(REGISTRY["matmul"](), b.one(REGISTRY["div"](), e, total),
                     b.constant(weights(6, 4)))  # fmt: skip

    before = graph_of(softmax, (3, 6))
    after = half_precision(before, f16)
    assert types(after, "exp") == types(after, "div") == [f32]
    assert types(after, "matmul") == [f16]
    assert error(before, f16, np.full((3, 6), 20, np.float32)) < 2e-3  # exp(20) is 4.8e8


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_constants_stay_finite(half: DType) -> None:
    """A mask of zero times the least number is zero, and not NaN."""
    least = float(np.finfo(np.float32).min)

    def masked(b: GraphBuilder, x: Value) -> Value:
        return b.one(REGISTRY["mul"](), x, b.constant(np.float32(least)))

    after = half_precision(graph_of(masked, (3,)), half)
    (constant,) = after.constants
    assert np.isfinite(constant.array.astype(np.float32))
    (got,) = interpret(after, [np.zeros(3, np.float32)])
    assert not np.isnan(got).any()
    endless = graph_of(lambda b, x: b.one(REGISTRY["maximum"](), x, _infinite(b)), (3,))
    (kept,) = half_precision(endless, half).constants
    assert np.isneginf(kept.array.astype(np.float32))


def _infinite(b: GraphBuilder) -> Constant:
    return b.constant(np.float32(-np.inf))


def test_what_takes_no_halves_stays() -> None:
    """Integers made of numbers are made of f32; what is no float is left alone."""

    def positions(b: GraphBuilder, x: Value) -> Value:
        return b.one(make_op("cast", {"to": "i64"}), b.one(REGISTRY["exp"](), x))

    after = half_precision(graph_of(positions, (3,)), f16)
    assert [n.op.name for n in after.nodes] == ["exp", "cast"]
    b = GraphBuilder()
    x = b.input("x", TensorType((3,), i64))
    plain = Graph((x,), (b.one(REGISTRY["add"](), x, x),), ("y",))
    assert half_precision(plain, f16).outputs == plain.outputs


def test_batch_norm_has_its_parameters_in_f32() -> None:
    def norm(b: GraphBuilder, x: Value) -> Value:
        channel = [b.constant(np.abs(weights(8)) + 0.1) for _ in range(4)]
        return b.one(REGISTRY["relu"](), b.one(REGISTRY["batch_norm"](), x, *channel))

    after = half_precision(graph_of(norm, (1, 8, 4)), f16)
    assert types(after, "batch_norm") == [f32]
    assert {c.type.dtype for c in after.constants} == {f32}
    assert types(after, "relu") == [f16]
